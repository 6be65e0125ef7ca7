# SPDX-License-Identifier: Apache-2.0
"""How to reach a tf.data service: what its workers write into a file, and trainers read."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from typing import Any, Dict, List, Mapping, Tuple

from horovod.data.compute_client import ComputeClient

_POLL_SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class TfDataServiceConfig:
    """A tf.data service.

    Args:
        dispatchers: how many dispatchers it has.
        workers_per_dispatcher: how many workers each of them has.
        dispatcher_side: "compute" (beside the workers) or "training" (in the ranks that train).
        addresses: of the compute service, by interface: {"eth0": [("10.0.0.1", 4711)]}.
        key: of the compute service.
        timeout: seconds to wait for dispatchers and workers.
    """

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: Mapping[str, List[Tuple[str, int]]]
    key: bytes
    timeout: int = 60

    def compute_client(self, verbose: int = 1) -> ComputeClient:
        """A client of the compute service."""
        return ComputeClient(self.addresses, self.key, verbose=verbose)

    def to_dict(self) -> Dict[str, Any]:
        """As plain values; the key in hexadecimal digits."""
        return {**{field.name: getattr(self, field.name) for field in dataclasses.fields(self)},
                "addresses": {name: list(places) for name, places in self.addresses.items()},
                "key": self.key.hex()}  # fmt: skip

    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> TfDataServiceConfig:
        """The other way."""
        return TfDataServiceConfig(
            dispatchers=config["dispatchers"],
            workers_per_dispatcher=config["workers_per_dispatcher"],
            dispatcher_side=config["dispatcher_side"],
            addresses={
                name: [(str(host), int(port)) for host, port in places]
                for name, places in config["addresses"].items()
            },
            key=bytes.fromhex(config["key"]),
            timeout=config["timeout"],
        )

    def write(self, filename: str) -> None:
        """Writes a JSON file, as a whole or not at all. Only its owner may read it: it has the key."""
        beside = f"{filename}.{os.getpid()}"
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(self.to_dict(), file)
        os.replace(beside, filename)

    @staticmethod
    def read(filename: str, wait_for_file_creation: bool = False) -> TfDataServiceConfig:
        """Reads the file; if asked to, waits until there is one, looking once a second."""
        while wait_for_file_creation and not os.path.exists(filename):
            time.sleep(_POLL_SECONDS)
        with open(filename, encoding="utf-8") as file:
            return TfDataServiceConfig.from_dict(json.load(file))
