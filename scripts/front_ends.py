# SPDX-License-Identifier: Apache-2.0
"""How the front ends' public collectives differ from each other; most of it is history that scripts rely on.

scripts/generate_verbs.py writes them from the table in horovod/common/verbs.py and from this.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import Callable, Dict, List, NamedTuple, Tuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from horovod.common.verbs import Argument, Result, Verb  # noqa: E402


class Form(NamedTuple):
    """One of the functions of a verb."""

    grouped: bool = False
    asynchronous: bool = False
    in_place: bool = False

    def name(self, verb: Verb) -> str:
        """Its public name, e.g. grouped_allreduce_async_."""
        suffix = ("_async" if self.asynchronous else "") + ("_" if self.in_place else "")
        return verb.prefix(self.grouped) + suffix

    def target(self, verb: Verb) -> str:
        """The function in _forms.py."""
        if verb.result is Result.EXCHANGED:
            return "start_exchange" if self.asynchronous else "exchange"
        start = "start" if self.asynchronous else "run"
        return start + ("_group" if self.grouped else "") + ("_in_place" if self.in_place else "")


FORMS = tuple(Form(g, a, i) for g in (False, True) for a in (False, True) for i in (False, True))


class Extra(NamedTuple):
    """An argument that only some front ends have."""

    argument: Argument
    before: str = ""  # the argument it stands before, or
    after: str = ""  # after
    of_blocking_reductions: bool = False  # only these have it
    by_keyword: bool = False  # handed on by its name
    ignored: bool = False  # accepted, and not handed on


@dataclass
class FrontEnd:
    """One front end.

    Attributes:
        title: documentation of the module.
        imports: what its types need.
        tensor, tensor_doc: the type of a tensor, and what may be one.
        result: the type of what a blocking form returns.
        asynchronous, in_place: whether there are such forms.
        checks_op: wrong reductions are refused before the call; otherwise they are left to the engine.
        calls_later: forms get the arguments of a Call instead of one, which takes half a microsecond to make.
        orders: of the arguments, by function or verb, where they are not the table's; extras that are not
            listed are left out.
        notes: for the documentation, by verb.
    """

    name: str
    title: str
    imports: str
    tensor: str
    tensor_doc: str
    result: Callable[[Verb, Form], str]
    asynchronous: bool = True
    in_place: bool = True
    checks_op: bool = True
    calls_later: bool = False
    extras: Tuple[Extra, ...] = ()
    orders: Dict[str, str] = field(default_factory=dict)
    notes: Dict[str, str] = field(default_factory=dict)

    def has(self, verb: Verb, form: Form) -> bool:
        """Whether there is such a function here."""
        offered = (self.asynchronous or not form.asynchronous) and (self.in_place or not form.in_place)
        return offered and (verb.in_place or not form.in_place) and (verb.grouped or not form.grouped)

    def arguments(self, verb: Verb, form: Form) -> List[Argument]:
        """What the function takes after its tensor, in order."""
        arguments = list(verb.arguments)
        for extra in self.extras:
            if extra.of_blocking_reductions and (form.asynchronous or form.in_place or not verb.reductions):
                continue
            names = [argument.name for argument in arguments]
            at = names.index(extra.before) if extra.before else names.index(extra.after) + 1
            arguments.insert(at, extra.argument)
        order = self.orders.get(form.name(verb), self.orders.get(verb.name, "")).split()
        if not order:
            return arguments
        extras = [extra.argument.name for extra in self.extras]
        listed = [a for a in arguments if a.name in order or a.name not in extras]
        return sorted(listed, key=lambda a: order.index(a.name))


_COMPRESSION = Extra(
    Argument("compression", "Any", "Compression.none", "how to shrink what travels, e.g. Compression.fp16."),
    before="op",
    of_blocking_reductions=True,
)
_DEVICES = tuple(
    Extra(
        Argument(name, "str", '""', "accepted for compatibility; TensorFlow places what it computes."),
        after="process_set",
        of_blocking_reductions=True,
        ignored=True,
    )
    for name in ("device_dense", "device_sparse")
)
_NAME_SCOPE = Extra(
    Argument("ignore_name_scope", "bool", "False", "leave TensorFlow's name scopes out of the name."),
    after="process_set",
    by_keyword=True,
)
_PRIORITY = Extra(
    Argument("priority", "int", "0", "higher ones are started first by MXNet's engine."), after="name"
)


def _anything(verb: Verb, form: Form) -> str:
    return "List[Any]" if form.grouped else "Any"


def _sequences(verb: Verb, form: Form) -> str:
    return "Sequence[Any]" if form.grouped else "Any"


def _torch(verb: Verb, form: Form) -> str:
    if verb.result is Result.EXCHANGED:
        return "Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]"
    if not form.grouped:
        return "torch.Tensor"
    return "List[torch.Tensor]" if verb.reductions and not form.in_place else "Tuple[torch.Tensor, ...]"


FRONT_ENDS = [
    FrontEnd(
        "numpy",
        "The collectives on arrays, and on lists, numbers and anything with the buffer protocol.",
        "from typing import Any, List, Optional, Sequence",
        "Any",
        "array, list, number, or anything with the buffer protocol.",
        _anything,
        calls_later=True,
    ),
    FrontEnd(
        "torch",
        """The collectives on torch tensors.

Every verb comes in up to four forms:

    verb            blocking; returns a new tensor; differentiable
    verb_           blocking; overwrites its argument and returns it
    verb_async      returns a handle at once; `synchronize(handle)` waits and returns the output
    verb_async_     both

and so do groups of tensors: `grouped_verb`, ... All dtypes are taken (complex for sums; float8 is moved but
not reduced), on any device and in any layout. Until `synchronize` returns, the tensors given to an
asynchronous form must not be modified; their storage cannot be resized any more.

Raises, in all of them: ValueError for a wrong argument; HorovodInternalError if the ranks disagree about an
operation, a peer died, or Horovod is not initialised or was shut down.
""",
        "from typing import Any, List, Optional, Sequence, Tuple, Union\n\nimport torch",
        "torch.Tensor",
        "on any device, in any layout.",
        _torch,
        checks_op=False,
        extras=(_COMPRESSION,),
        notes={"allreduce": "Sparse COO tensors are gathered and summed by row."},
    ),
    FrontEnd(
        "jax",
        """The collectives on jax arrays and pytrees.

Every verb works on concrete arrays and inside `jit`, `grad`, `scan`, `cond` and `vmap`. A pytree is one
grouped operation on its leaves: the ranks agree on it once and its tensors travel together.
""",
        "from typing import Any, List, Optional, Sequence",
        "Any",
        "array or pytree of arrays, which are handled as one operation.",
        _anything,
        asynchronous=False,
        in_place=False,
        extras=(_COMPRESSION,),
        notes={
            "allgather": "Inside jit the ranks' first dimensions must be equal.",
            "alltoall": "Inside jit the splits must be equal.",
        },
    ),
    FrontEnd(
        "mxnet",
        """The collectives on NDArray and mx.np arrays.

Allreduce and broadcast are operations of MXNet's own dependency engine: they return at once, and whatever
uses the result waits for it. The others return when they are done, because the size of their result is not
known before.
""",
        "from typing import Any, Optional, Sequence",
        "Any",
        "dense NDArray or mx.np array.",
        _sequences,
        asynchronous=False,
        checks_op=False,
        extras=(_PRIORITY,),
        orders={
            "allreduce": "average name priority prescale_factor postscale_factor process_set op",
            "reducescatter": "op name priority process_set prescale_factor postscale_factor",
        },
        notes={"allreduce": "Adasum is not supported."},
    ),
    FrontEnd(
        "tensorflow",
        """The collectives on TensorFlow's tensors, in eager mode, tf.function and TF1 graphs.

In a graph they are matched by the names of their nodes; an unnamed one is named after its tensor.

Raises, in all of them: tf.errors.InvalidArgumentError for a wrong argument; FailedPreconditionError if the
ranks disagree about an operation or Horovod is not initialised; UnknownError if a peer died or the job was
shut down.
""",
        "from typing import Any, List, Optional, Sequence",
        "Any",
        "tf.Tensor, tf.Variable or anything that becomes one.",
        _anything,
        asynchronous=False,
        in_place=False,
        checks_op=False,
        extras=(_COMPRESSION._replace(by_keyword=True), *_DEVICES, _NAME_SCOPE),
        orders={
            "allreduce": "average device_dense device_sparse compression op prescale_factor postscale_factor "
            "name process_set ignore_name_scope",
            "grouped_allreduce": "average device_dense device_sparse compression op prescale_factor "
            "postscale_factor process_set ignore_name_scope name",
            "allgather": "name ignore_name_scope process_set",
            "broadcast": "root_rank name ignore_name_scope process_set",
            "alltoall": "splits name ignore_name_scope process_set",
            "reducescatter": "device_dense compression op name process_set ignore_name_scope prescale_factor "
            "postscale_factor",
            "grouped_reducescatter": "device_dense compression op process_set prescale_factor "
            "postscale_factor name ignore_name_scope",
        },
        notes={"allreduce": "The sum or average of tf.IndexedSlices is tf.IndexedSlices again."},
    ),
]
