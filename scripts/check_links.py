#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks every link of a built site without a network: files must exist, anchors must be in them.

    python scripts/check_links.py site

Addresses of other sites are only checked for their form: they must start with https://.
"""

from __future__ import annotations

import os
import sys
from html.parser import HTMLParser
from typing import Dict, List, Set
from urllib.parse import unquote, urldefrag


class Page(HTMLParser):
    """The links and anchors of one page."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.links: List[str] = []
        self.anchors: Set[str] = {""}
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())

    def handle_starttag(self, tag: str, attrs: List) -> None:
        for name, value in attrs:
            if name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value or "")
            elif name in ("href", "src") and value:
                self.links.append(value)


def check(site: str) -> List[str]:
    """What is wrong, one line each."""
    pages: Dict[str, Page] = {}
    for folder, _, files in os.walk(site):
        for name in files:
            if name.endswith(".html"):
                path = os.path.normpath(os.path.join(folder, name))
                pages[path] = Page(path)
    wrong = []
    for path, page in sorted(pages.items()):
        if os.path.basename(path) == "404.html":
            continue  # served from any depth, so its links are absolute
        for link in page.links:
            problem = problem_of(link, path, pages)
            if problem:
                wrong.append(f"{os.path.relpath(path, site)}: {link}: {problem}")
    print(f"check_links: {len(pages)} pages, {sum(len(p.links) for p in pages.values())} links")
    return wrong


def problem_of(link: str, path: str, pages: Dict[str, Page]) -> str:
    """What is wrong with one link, or nothing."""
    if link.startswith(("https://", "data:", "mailto:", "javascript:")):
        return ""
    if "://" in link or link.startswith("//"):
        return "not https"
    target, anchor = urldefrag(unquote(link))
    file = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
    if os.path.isdir(file):
        file = os.path.join(file, "index.html")
    if not os.path.exists(file):
        return "no such file"
    if anchor and file in pages and anchor not in pages[file].anchors:
        return "no such anchor"
    return ""


if __name__ == "__main__":
    problems = check(sys.argv[1])
    print("\n".join(problems))
    sys.exit(1 if problems else 0)
