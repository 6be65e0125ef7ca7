#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes horovod/<front end>/collectives.py, the public collectives, from horovod/common/verbs.py.

python scripts/generate_verbs.py             all front ends
python scripts/generate_verbs.py --check     exit with 1 if one of them is not current

A public function makes a Call of its arguments and hands it to the form it stands for, in the front end's
_forms.py; or it hands on the arguments, where a form often does without. How the front ends differ is in
front_ends.py.
"""

from __future__ import annotations

import os
import sys
import textwrap
from typing import List

from front_ends import FORMS, FRONT_ENDS, ROOT, Form, FrontEnd

from horovod.common.verbs import VERBS, Result, Verb

WIDTH = 110


def signature(front_end: FrontEnd, verb: Verb, form: Form) -> str:
    """The def line, wrapped."""
    parts = [f"tensors: Sequence[{front_end.tensor}]" if form.grouped else f"tensor: {front_end.tensor}"]
    for argument in front_end.arguments(verb, form):
        default = "" if argument.default is None else f" = {argument.default}"
        parts.append(f"{argument.name}: {argument.type}{default}")
    start = f"def {form.name(verb)}("
    end = f") -> {'int' if form.asynchronous else front_end.result(verb, form)}:"
    if len(start) + len(", ".join(parts)) + len(end) <= WIDTH:
        return start + ", ".join(parts) + end
    lines = ["   "]
    for part in parts:
        if len(lines[-1]) + len(part) + 2 > WIDTH:
            lines.append("   ")
        lines[-1] += f" {part},"
    return "\n".join([start, *lines, end])


def documentation(front_end: FrontEnd, verb: Verb, form: Form) -> str:
    """The docstring. The plain form has all of it, the others say how they differ from it."""
    if form == Form():
        return full_documentation(front_end, verb)
    if form.asynchronous:
        blocking = form._replace(asynchronous=False).name(verb)
        both = "; the result is always both" if verb.result is Result.EXCHANGED else ""
        text = f"Starts `{blocking}` and returns a handle for `poll` and `synchronize`{both}."
    elif form.grouped:
        single = form._replace(grouped=False).name(verb)
        text = f"`{single}` of several tensors, none before all are ready on all ranks."
    else:
        text = f"`{verb.name}` into the tensor itself, which is returned."
    return f'"""{text}"""'


def full_documentation(front_end: FrontEnd, verb: Verb) -> str:
    """Summary, arguments and result."""
    lines = [f'"""{verb.summary}', ""]
    note = front_end.notes.get(verb.name)
    lines += [note, ""] if note else []
    lines += ["Args:", f"    tensor: {front_end.tensor_doc}"]
    lines += [f"    {argument.name}: {argument.doc}" for argument in front_end.arguments(verb, Form())]
    lines += ["", "Returns:", f"    {verb.returns}"] if verb.returns else []
    return "\n".join([*lines, '"""'])


def body(front_end: FrontEnd, verb: Verb, form: Form) -> str:
    """Makes the Call, or leaves that to the form, and hands it on."""
    names = [argument.name for argument in front_end.arguments(verb, form)]
    values = [verb.name.upper(), "name", "set_id"]
    if "average" in names:
        values.append("resolve_op(op, average)")
    elif "op" in names:
        values.append(f"check_op({verb.name.upper()}, op)" if front_end.checks_op else "op")
    if "prescale_factor" in names:
        values += ["prescale_factor", "postscale_factor"]
    values += [
        f"{name}={given}" for name, given in (("root", "root_rank"), ("splits", "splits")) if given in names
    ]
    extras = [e for e in front_end.extras if e.argument.name in names and not e.ignored]
    handed = [f"{e.argument.name}={e.argument.name}" if e.by_keyword else e.argument.name for e in extras]
    tensor = "tensors" if form.grouped else "tensor"
    if front_end.calls_later and verb.result is not Result.EXCHANGED:
        lines = ["set_id = process_set_id(process_set)"]
        if "op" in names:
            lines.append(f"op = {values[3]}")
            values[3] = "op"
        if "root_rank" in names:
            values[3:] = ["Sum", "1.0", "1.0", "root_rank"]
        passed = ", ".join([tensor, *values, *handed])
        handing_on = f"return _forms.{form.target(verb)}({passed})"
        if len(handing_on) + 4 > WIDTH:
            handing_on = f"return _forms.{form.target(verb)}(\n    {passed},\n)"
        return "\n".join([*lines, handing_on])
    passed = ", ".join(["call", tensor, *handed])
    return "\n".join(
        [
            "set_id = process_set_id(process_set)",
            f"call = Call({', '.join(values)})",
            f"return _forms.{form.target(verb)}({passed})",
        ]
    )


def page(front_end: FrontEnd) -> str:
    """A whole module."""
    offered = [(verb, form) for verb in VERBS.values() for form in FORMS if front_end.has(verb, form)]
    functions: List[str] = []
    for verb, form in offered:
        inside = f"{documentation(front_end, verb, form)}\n{body(front_end, verb, form)}"
        functions.append(f"{signature(front_end, verb, form)}\n{textwrap.indent(inside, '    ')}")
    text = "\n\n\n".join(functions)
    rows = ", ".join(sorted(verb.name.upper() for verb in VERBS.values()))
    checks = ", ".join(name for name in ("check_op", "resolve_op") if f"{name}(" in text)
    names = ", ".join(f'"{form.name(verb)}"' for verb, form in offered)
    listed = textwrap.fill(names, WIDTH, initial_indent="    ", subsequent_indent="    ")
    constants = "Average, Sum" if " Sum, 1.0" in text else "Average"
    compression = f"from horovod.{front_end.name}.compression import Compression\n"
    return f'''# SPDX-License-Identifier: Apache-2.0
# Written by scripts/generate_verbs.py from horovod/common/verbs.py: edit there, run `make verbs`.
"""{front_end.title}"""

from __future__ import annotations

{front_end.imports}

from horovod.common.arguments import {checks}
from horovod.common.calls import Call
from horovod.common.constants import {constants}
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.common.verbs import {rows}
from horovod.{front_end.name} import _forms
{compression if "Compression." in text else ""}
# fmt: off

__all__ = [
{listed},
]


{text}
'''


def main() -> int:
    """The command line."""
    stale = 0
    for front_end in FRONT_ENDS:
        path = os.path.join(ROOT, "horovod", front_end.name, "collectives.py")
        text = page(front_end)
        current = open(path).read() if os.path.exists(path) else ""
        if current == text:
            continue
        if "--check" in sys.argv[1:]:
            print(f"{os.path.relpath(path, ROOT)} is not current: run `make verbs`", file=sys.stderr)
            stale = 1
        else:
            with open(path, "w") as file:
                file.write(text)
            print(f"generate_verbs: wrote {os.path.relpath(path, ROOT)}")
    return stale


if __name__ == "__main__":
    sys.exit(main())
