# SPDX-License-Identifier: Apache-2.0
"""A strategy for Lightning's Trainer: one process is one rank, gradients are reduced by our optimizer."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import Any, Dict, Iterator, List, Optional

import torch
from lightning.pytorch.strategies import ParallelStrategy, Strategy, StrategyRegistry
from lightning.pytorch.utilities import rank_zero_only

import horovod.torch as hvd

_OPS = {"mean": hvd.Average, "avg": hvd.Average, "sum": hvd.Sum, "min": hvd.Min, "max": hvd.Max}


class HorovodStrategy(ParallelStrategy):
    """Trains on the ranks of a job. Use it with devices=1: a rank has one device.

    Args:
        scale_learning_rate: multiply the rates by the number of ranks; checkpoints hold those of one.
        compression: as in hvd.DistributedOptimizer, as are op and further keyword arguments.
        op: hvd.Average, hvd.Sum or hvd.Adasum.
        accelerator: Lightning's, as are parallel_devices, checkpoint_io and precision_plugin.
    """

    strategy_name = "horovod"
    optimizers: List[Any]

    def __init__(
        self,
        scale_learning_rate: bool = False,
        compression: Any = hvd.Compression.none,
        op: int = hvd.Average,
        accelerator: Any = None,
        parallel_devices: Optional[List[torch.device]] = None,
        checkpoint_io: Any = None,
        precision_plugin: Any = None,
        **optimizer_options: Any,
    ) -> None:
        super().__init__(
            accelerator=accelerator,
            parallel_devices=parallel_devices,
            checkpoint_io=checkpoint_io,
            precision_plugin=precision_plugin,
        )
        self._scale = scale_learning_rate
        self._options = dict(optimizer_options, compression=compression, op=op)

    # ------------------------------------------------------------------------------------- who we are

    def set_world_ranks(self) -> None:
        """Joins the job; the Trainer calls it when it is made."""
        hvd.init()
        rank_zero_only.rank = hvd.rank()

    @property
    def global_rank(self) -> int:
        return int(hvd.rank())

    @property
    def local_rank(self) -> int:
        return int(hvd.local_rank())

    @property
    def node_rank(self) -> int:
        return int(hvd.cross_rank())

    @property
    def world_size(self) -> int:
        return int(hvd.size())

    @property
    def is_distributed(self) -> bool:
        """Tells the Trainer to give each rank its part of a DataLoader."""
        return True

    @property
    def root_device(self) -> torch.device:
        device: torch.device = (self.parallel_devices or [torch.device("cpu")])[0]
        if device.type == "cuda" and torch.cuda.device_count() > 1:
            return torch.device("cuda", self.local_rank)
        return device

    @property
    def distributed_sampler_kwargs(self) -> Dict[str, Any]:
        return {"num_replicas": self.world_size, "rank": self.global_rank}

    # ---------------------------------------------------------------------------- model and optimizers

    def model_to_device(self) -> None:
        assert self.model is not None
        self.model.to(self.root_device)

    def setup_optimizers(self, trainer: Any) -> None:
        super().setup_optimizers(trainer)
        if self._scale:
            for optimizer in self.optimizers:
                _multiply_rates(optimizer.param_groups, self.world_size)
            for config in self.lr_scheduler_configs:
                rates = getattr(config.scheduler, "base_lrs", None)
                if rates is not None:
                    config.scheduler.base_lrs = [rate * self.world_size for rate in rates]
        self.optimizers = [self._distributed(optimizer) for optimizer in self.optimizers]

    def on_train_start(self) -> None:
        """Starts all ranks with the values of rank 0, be they new or from a checkpoint."""
        assert self.lightning_module is not None
        hvd.broadcast_parameters(self.lightning_module.state_dict(), root_rank=0)
        for optimizer in self.optimizers:
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Adds gradients up on this rank; the Trainer uses it for accumulate_grad_batches."""
        with ExitStack() as stack:
            for optimizer in self.optimizers:
                stack.enter_context(optimizer.no_sync())
            yield

    def optimizer_state(self, optimizer: Any) -> Dict[str, Any]:
        state: Dict[str, Any] = super().optimizer_state(optimizer)
        if not self._scale:
            return state
        groups = [dict(group) for group in state["param_groups"]]
        _multiply_rates(groups, 1 / self.world_size)
        return dict(state, param_groups=groups)

    def load_optimizer_state_dict(self, checkpoint: Any) -> None:
        super().load_optimizer_state_dict(checkpoint)
        if self._scale:
            for optimizer in self.optimizers:
                _multiply_rates(optimizer.param_groups, self.world_size)

    def teardown(self) -> None:
        Strategy.teardown(self)  # there is no cluster environment to end

    # ------------------------------------------------------------------------------------- collectives

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        if not isinstance(tensor, torch.Tensor):
            return tensor
        name = str(reduce_op).rpartition(".")[2].lower()  # "mean", or ReduceOp.SUM
        if name not in _OPS:
            raise ValueError(f"HorovodStrategy cannot reduce with {reduce_op}; it can with {', '.join(_OPS)}")
        if _OPS[name] == hvd.Average and not tensor.is_floating_point():
            tensor = tensor.float()
        return hvd.allreduce(tensor, op=_OPS[name])

    def all_gather(self, tensor: Any, group: Any = None, sync_grads: bool = False) -> Any:
        with torch.set_grad_enabled(sync_grads and torch.is_grad_enabled()):
            return hvd.allgather(tensor.unsqueeze(0))

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        return hvd.broadcast_object(obj, root_rank=src)

    def barrier(self, name: Optional[str] = None) -> None:
        hvd.barrier()

    # ----------------------------------------------------------------------------------------- private

    def _distributed(self, optimizer: Any) -> Any:
        assert self.lightning_module is not None
        mine = {id(param) for group in optimizer.param_groups for param in group["params"]}
        named = [(name, p) for name, p in self.lightning_module.named_parameters() if id(p) in mine]
        return hvd.DistributedOptimizer(optimizer, named_parameters=named, **self._options)


def _multiply_rates(groups: List[Dict[str, Any]], factor: float) -> None:
    for group in groups:
        for name in ("lr", "initial_lr"):
            if name in group:
                group[name] = group[name] * factor


if HorovodStrategy.strategy_name not in StrategyRegistry:
    StrategyRegistry.register(HorovodStrategy.strategy_name, HorovodStrategy, description="ranks of Horovod")
