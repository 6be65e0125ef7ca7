# SPDX-License-Identifier: Apache-2.0
"""The few things of jax that have no public name. Checked on jax 0.6, 0.8 and 0.10.

jax knows *ordered effects*: calls that carry one are tied together by a token, inside a program (also through
`scan`, `cond` and gradients) and from one program to the next. That is exactly what collectives need, and the
only private piece is the registry of effect types.
"""

from __future__ import annotations

from typing import Any, Sequence

from jax._src import core as _core
from jax._src import dispatch as _dispatch
from jax._src import effects as _effects

abstract_token = _core.abstract_token


class CollectiveEffect(_effects.Effect):
    """All ranks run their collectives in the order of the program."""

    def __str__(self) -> str:
        return "HorovodCollective"


class CompiledAheadEffect(_effects.Effect):
    """Unordered companion. Programs compiled ahead of time (`jit(f).lower(x).compile()`) take a shortcut that
    forgets the tokens of ordered effects, unless there is an unordered effect as well."""

    def __str__(self) -> str:
        return "HorovodCompiledAhead"


collective_effect = CollectiveEffect()
all_effects = {collective_effect, CompiledAheadEffect()}

_effects.ordered_effects.add_type(CollectiveEffect)
for _registry in (
    _effects.lowerable_effects,
    _effects.control_flow_allowed_effects,
    _effects.custom_derivatives_allowed_effects,
    _effects.remat_allowed_effects,
):
    _registry.add_type(CollectiveEffect)
    _registry.add_type(CompiledAheadEffect)


def forget_failed_programs() -> None:
    """On a GPU the token of a program that failed fails all that come after it. Lets those begin anew."""
    _dispatch.runtime_tokens.clear()  # type: ignore[no-untyped-call]


def in_program() -> bool:
    """Whether a program is being built (jit, scan, ...), so that operations are recorded instead of run."""
    return not _core.trace_state_clean()


def is_concrete(arrays: Sequence[Any]) -> bool:
    """Whether the arrays have values and nobody is watching (no jit, grad or vmap): no need to ask jax."""
    return _core.trace_state_clean() and not any(isinstance(array, _core.Tracer) for array in arrays)
