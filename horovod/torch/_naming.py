# SPDX-License-Identifier: Apache-2.0
"""Names and groups of an optimizer's parameters, with the checks that users meet."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional, Sequence, Set, Tuple, Union

import torch

from horovod.common.basics import basics
from horovod.common.objects import broadcast_object
from horovod.common.process_sets import ProcessSet
from horovod.common.util import split_list

Named = Iterable[Tuple[str, torch.Tensor]]
Groups = Union[None, int, Sequence[Sequence[torch.Tensor]]]


def parameters_of(optimizer: torch.optim.Optimizer) -> List[torch.Tensor]:
    """All parameters, in the order of the parameter groups."""
    return [param for group in optimizer.param_groups for param in group["params"]]


def find_duplicates(lst: Iterable[Any]) -> Set[Any]:
    """The elements that occur more than once."""
    seen: Set[Any] = set()
    return {element for element in lst if element in seen or seen.add(element)}  # type: ignore[func-returns-value]


_numbers: Dict[Tuple[int, ...], int] = {}  # how many optimizers there are, by the ranks of their process set
basics.at_shutdown(_numbers.clear)


def optimizer_prefix(process_set: ProcessSet) -> str:
    """Tells the names of a set's optimizers apart, in order of first use: "", "opt1.", "opt2.", ..."""
    members = tuple(process_set.ranks or ())
    number = _numbers[members] = _numbers.get(members, -1) + 1
    return f"opt{number}." if number else ""


def default_name(group: int, index: int) -> str:
    """The name of a parameter that was given none."""
    return f"allreduce.noname.{group}.{index}"


def name_parameters(optimizer: torch.optim.Optimizer, named: Optional[Named]) -> Dict[torch.Tensor, str]:
    """A name for every parameter of the optimizer."""
    if named is None:
        return {
            param: default_name(number, index)
            for number, group in enumerate(optimizer.param_groups)
            for index, param in enumerate(group["params"])
        }
    pairs = list(named)
    if any(not isinstance(pair, tuple) for pair in pairs):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced by "
            "model.named_parameters()."
        )
    duplicates = find_duplicates(name for name, _ in pairs)
    if duplicates:
        raise ValueError(
            "Parameter names in named_parameters must be unique. Found duplicates: "
            + ", ".join(sorted(duplicates))
        )
    names = {param: name for name, param in pairs}
    unnamed = [param for param in parameters_of(optimizer) if param not in names]
    if unnamed:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named. Python object "
            "ids: " + ", ".join(str(id(param)) for param in unnamed)
        )
    return {param: names[param] for param in parameters_of(optimizer)}


def group_names(names: Dict[torch.Tensor, str], groups: Groups, process_set: ProcessSet) -> List[List[str]]:
    """The parameters' names in the groups that are reduced together; most are groups of one."""
    if isinstance(groups, int):
        order = list(names.values())
        if process_set.included() and (process_set.size() or 1) > 1:
            # Ranks may enumerate their parameters differently; the first one's order counts.
            root = (process_set.ranks or [0])[0]
            order = broadcast_object(order, root, "DistributedOptimizer.groups", process_set)
        return [group for group in split_list(order, groups) if group]
    listed = [[names[param] for param in group if param in names] for group in groups or ()]
    grouped = {name for group in listed for name in group}
    return [group for group in listed if group] + [[name] for name in names.values() if name not in grouped]
