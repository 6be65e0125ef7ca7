#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/api/*.md, the reference of each front end, from its docstrings.

python scripts/generate_api.py             all front ends whose framework is installed here
python scripts/generate_api.py torch jax   these
python scripts/generate_api.py --check     exit with 1 if one of them is not current

The pages are kept in the repository: MXNet needs another environment than the rest, so no single one can make
them all, and the documentation is built where no framework is installed.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import textwrap
from typing import Any, Dict, List

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)
FOLDER = os.path.join(ROOT, "docs", "api")

# Page, its title, its modules.
PAGES = {
    "numpy": ("horovod.numpy", ["horovod.numpy"]),
    "torch": ("horovod.torch", ["horovod.torch", "horovod.torch.elastic"]),
    "tensorflow": ("horovod.tensorflow", ["horovod.tensorflow", "horovod.tensorflow.elastic"]),
    "keras": ("horovod.keras", ["horovod.keras", "horovod.keras.callbacks", "horovod.keras.elastic"]),
    "jax": ("horovod.jax", ["horovod.jax", "horovod.jax.elastic"]),
    "mxnet": ("horovod.mxnet", ["horovod.mxnet", "horovod.mxnet.elastic"]),
    "run": ("horovod.run", ["horovod"]),
    "data": ("horovod.data", ["horovod.data"]),
    "spark": (
        "horovod.spark",
        [
            "horovod.spark",
            "horovod.spark.keras",
            "horovod.spark.torch",
            "horovod.spark.lightning",
            "horovod.spark.common.store",
            "horovod.spark.distributor",
        ],
    ),
}

# Sections by the first pattern that fits; what is not matched comes first, as "Training".
SECTIONS = {
    "Collectives": (
        r"(grouped_|sparse_)?(allreduce|allgather|broadcast|alltoall|reducescatter)(_async)?_?$"
        r"|(join|barrier|poll|synchronize)$"
    ),
    "Objects": r".*_object(_fn)?$",
    "Life and place": r"init$|shutdown$|is_|(local_|cross_)?(rank|size)(_op)?$",
    "Process sets": r".*[pP]rocess_?[sS]et.*",
    "Timeline and counters": r".*timeline$|metrics$|mark$|count_samples$",
    "What is there": r".*_(built|enabled|supported)$",
    "Constants": r"(Average|Sum|Adasum|Min|Max|Product)$",
}


def public_names(module: Any) -> List[str]:
    """What a module offers: its __all__, or what it defines itself. Names with an underscore are for others'
    libraries, not for the reference."""
    names = getattr(module, "__all__", None) or vars(module)
    return sorted((n for n in names if not n.startswith("_")), key=str.lower)


def section_of(name: str) -> str:
    """The heading under which a name is listed."""
    return next((title for title, pattern in SECTIONS.items() if re.match(pattern, name)), "Training")


def signature_of(thing: Any) -> str:
    """A signature as one reads it in the source: no quotes around annotations, defaults by name."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    parts = []
    keyword_only = False
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            if not any(p.startswith("*") for p in parts):
                parts.append("*")
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        text = stars + parameter.name
        if parameter.default is not parameter.empty:
            text += "=" + default_of(parameter.default)
        parts.append(text)
    return f"({', '.join(parts)})"


def default_of(value: Any) -> str:
    """A default value in short."""
    if type(value).__name__ == "ProcessSet":
        return "global_process_set"
    if inspect.isclass(value):
        name = value.__name__
        short = {"NoneCompressor": "Compression.none", "FP16Compressor": "Compression.fp16"}
        return short.get(name, name)
    text = repr(value)
    return text if " at 0x" not in text and len(text) < 60 else "..."


def entry(name: str, thing: Any) -> List[str]:
    """One function or class."""
    text = inspect.getdoc(thing) or ""
    call = f"{name}{signature_of(thing)}"
    call = textwrap.fill(call, 100, subsequent_indent="    ", break_on_hyphens=False)
    lines = [f"### {name}", "", "```text", call, "```", ""]
    lines += [formatted(text), ""]
    if inspect.isclass(thing) and not issubclass(thing, BaseException):
        for method, function in sorted(vars(thing).items()):
            doc = inspect.getdoc(getattr(thing, method, None)) if not method.startswith("_") else None
            if doc and (inspect.isfunction(function) or isinstance(function, (staticmethod, classmethod))):
                call = f"{method}{signature_of(getattr(thing, method))}"
                lines.append(f"* `{call}`: {doc.splitlines()[0]}")
        lines.append("")
    return lines


def formatted(doc: str) -> str:
    """A docstring as Markdown: its Args, Returns and Raises become lists and paragraphs."""
    if re.search(r"^\w+:  +\w", doc, re.MULTILINE):  # a table of its own making
        first, _, rest = doc.partition("\n\n")
        return f"{first}\n\n```text\n{rest}\n```"
    out: List[str] = []
    block = ""
    for line in doc.splitlines():
        heading = re.match(r"(Args|Arguments|Returns|Raises|Attributes|Yields):$", line)
        if heading:
            block = heading.group(1)
            out += ["", f"**{block}**", ""]
        elif block and line.startswith("    "):
            item = re.match(r"    (\*{0,2}[\w, *]+?): (.*)", line)
            if item and block != "Returns":
                out.append(f"* `{item.group(1)}`: {item.group(2)}")
            else:
                indent = "  " if out and out[-1].startswith("*") and item is None else ""
                out.append(indent + line.strip())
        else:
            block = block if not line.strip() else ""
            out.append(line)
    return "\n".join(out)


def constant(name: str, value: Any) -> str:
    """A row for a value that is no function and no class."""
    return f"* `{name}`" + (f" = {value!r}" if isinstance(value, (int, str)) else "")


def page(name: str) -> str:
    """A whole page."""
    title, modules = PAGES[name]
    lines = [
        "<!-- Generated by scripts/generate_api.py from the docstrings: edit there, run `make docs`. -->",
        "",
        f"# {title}",
        "",
    ]
    for number, module_name in enumerate(modules):
        module = importlib.import_module(module_name)
        if number:
            lines += [f"## {module_name}", ""]
        intro = (inspect.getdoc(module) or "").split("\n\n")[0]
        lines += [intro, ""] if intro else []
        groups: Dict[str, List[str]] = {}
        for public in public_names(module):
            groups.setdefault(section_of(public), []).append(public)
        for title in ["Training", *SECTIONS]:
            members = [n for n in groups.get(title, []) if not inspect.ismodule(getattr(module, n))]
            if not members:
                continue
            lines += [f"## {title}", ""] if number == 0 else []
            values = []
            for public in members:
                thing = getattr(module, public)
                if inspect.isclass(thing) or callable(thing):
                    lines += entry(public, thing)
                elif not public.startswith("__"):
                    values.append(constant(public, thing))
            lines += [*values, ""] if values else []
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def main() -> int:
    """The command line."""
    arguments = sys.argv[1:]
    check = "--check" in arguments
    wanted = [a for a in arguments if not a.startswith("-")] or list(PAGES)
    os.makedirs(FOLDER, exist_ok=True)
    stale = 0
    for name in wanted:
        try:
            text = page(name)
        except ImportError as error:
            print(f"generate_api: {name} is left as it is: {error}")
            continue
        path = os.path.join(FOLDER, f"{name}.md")
        current = open(path).read() if os.path.exists(path) else ""
        if current == text:
            continue
        if check:
            print(f"docs/api/{name}.md is not current: run `make docs`", file=sys.stderr)
            stale = 1
        else:
            with open(path, "w") as file:
                file.write(text)
            print(f"generate_api: wrote docs/api/{name}.md")
    return stale


if __name__ == "__main__":
    sys.exit(main())
