# SPDX-License-Identifier: Apache-2.0
"""tf.data service for the ranks of a job: `send_to_data_service` moves a dataset's work to its workers.

config = TfDataServiceConfig.read("service.json", wait_for_file_creation=True)
dataset = dataset.map(decode).send_to_data_service(config, hvd.rank(), hvd.size())
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
from typing import Any, Iterator, Optional

import tensorflow as tf

from horovod.common.basics import basics
from horovod.data.compute_client import ComputeClient
from horovod.rendezvous.network import is_loopback, primary_address
from horovod.tensorflow.data.config import TfDataServiceConfig
from horovod.tensorflow.mpi_ops import barrier

__all__ = ["TfDataServiceConfig", "compute_worker_fn", "send_to_data_service", "tf_data_service"]

log = logging.getLogger("horovod")
_JOB = "job"  # the name under which ranks share one pass over a dataset


@contextlib.contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """The address of this rank's dispatcher, for tf.data.experimental.service.distribute.

    Where dispatchers are on the training side, they run inside of this context: rank 0's for all ranks, or
    one on each rank. The body runs once the dispatcher has its workers.

    Args:
        compute_config: the service.
        rank: of this process among those that train.
    """
    compute = compute_config.compute_client(verbose=2)
    dispatcher_id = rank % compute_config.dispatchers
    dispatcher: Any = None
    on_training_side = compute_config.dispatcher_side == "training"
    if on_training_side and rank < compute_config.dispatchers:
        dispatcher = _start_dispatcher(compute, dispatcher_id, compute_config)
    try:
        address = compute.wait_for_dispatcher_registration(dispatcher_id, compute_config.timeout)
        compute.wait_for_dispatcher_worker_registration(dispatcher_id, compute_config.timeout)
        yield address
        if on_training_side and basics.is_initialized() and basics.size() > compute_config.dispatchers:
            barrier()  # others may still read through this rank's dispatcher
    finally:
        if dispatcher is not None:
            dispatcher._stop()


def send_to_data_service(
    dataset: tf.data.Dataset,
    compute_config: TfDataServiceConfig,
    rank: int,
    size: Optional[int] = None,
    processing_mode: str = "distributed_epoch",
    reuse_dataset: bool = False,
    round_robin: bool = False,
) -> tf.data.Dataset:
    """The dataset, computed by the service's workers. Also a method of tf.data.Dataset.

    Args:
        dataset: what to compute there.
        compute_config: the service; its dispatchers must be on the compute side.
        rank: of this process among those that train.
        size: how many those are; for round_robin.
        processing_mode: "distributed_epoch" (each element once) or "parallel_epochs" (once on each worker).
        reuse_dataset: ranks share one pass over the dataset, instead of a pass each.
        round_robin: with reuse_dataset: ranks take turns. The dataset must be endless.
    """
    if compute_config.dispatcher_side == "training":
        raise RuntimeError(
            "training side dispatcher not supported, use tf_data_service context manager instead"
        )
    if round_robin and reuse_dataset and size is None:
        raise ValueError("round_robin needs size, the number of ranks that take turns, e.g. hvd.size()")
    turns = reuse_dataset and round_robin
    with tf_data_service(compute_config, rank) as address:
        return dataset.apply(
            tf.data.experimental.service.distribute(
                processing_mode=processing_mode,
                service=address,
                job_name=_JOB if reuse_dataset else None,
                consumer_index=rank if turns else None,
                num_consumers=size if turns else None,
            )
        )


tf.data.Dataset.send_to_data_service = send_to_data_service


def compute_worker_fn(compute_config: TfDataServiceConfig) -> None:
    """One process of the service, until that is shut down: a worker, and on the first ones a dispatcher.

    Runs as every rank of a job of its own, e.g. `horovod.run(compute_worker_fn, (config,), num_proc=4)`.
    """
    basics.init()
    rank = basics.rank()
    compute = compute_config.compute_client(verbose=2)
    dispatcher: Any = None
    if compute_config.dispatcher_side == "compute" and rank < compute_config.dispatchers:
        dispatcher = _start_dispatcher(compute, rank, compute_config)
    dispatcher_id = rank // compute_config.workers_per_dispatcher
    address = compute.wait_for_dispatcher_registration(dispatcher_id, compute_config.timeout)
    worker = tf.data.experimental.service.WorkerServer(
        tf.data.experimental.service.WorkerConfig(
            dispatcher_address=address.split("://")[1],
            worker_address=f"{_own_address(compute_config)}:%port%",  # TensorFlow fills in the port
            # A worker does not stop while it asks a dispatcher that is gone for data: an hour by default.
            dispatcher_timeout_ms=compute_config.timeout * 1000,
        )
    )
    compute.register_worker_for_dispatcher(dispatcher_id, rank)
    log.info("worker %d of dispatcher %d at %s", rank, dispatcher_id, address)
    compute.wait_for_shutdown()
    worker._stop()
    try:
        barrier()  # until they have stopped, workers ask for more data ahead
    finally:
        if dispatcher is not None:
            dispatcher._stop()


def _start_dispatcher(compute: ComputeClient, dispatcher_id: int, compute_config: TfDataServiceConfig) -> Any:
    dispatcher = tf.data.experimental.service.DispatchServer()
    port = dispatcher.target.rsplit(":", 1)[1]  # of "grpc://localhost:4711"
    try:
        compute.register_dispatcher(dispatcher_id, f"grpc://{_own_address(compute_config)}:{port}")
    except BaseException:
        dispatcher._stop()
        raise
    return dispatcher


def _own_address(compute_config: TfDataServiceConfig) -> str:
    """This machine's address on the way to the service, where the others of it are; IPv6 in brackets."""
    hosts = [host for places in compute_config.addresses.values() for host, _ in places]
    own = primary_address(next((host for host in hosts if not is_loopback(host)), None))
    return f"[{own}]" if ipaddress.ip_address(own).version == 6 else own
