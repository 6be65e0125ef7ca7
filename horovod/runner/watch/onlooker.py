# SPDX-License-Identifier: Apache-2.0
"""What a job tells whoever looks at it. This one does not listen: the default (watcher.Watcher does)."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Mapping, Optional

if TYPE_CHECKING:
    from horovod.rendezvous.store_server import StoreServer
    from horovod.rendezvous.store_service import Event


class Onlooker:
    """All methods return at once and may be called from any thread."""

    def open(self) -> None:
        """The job is about to start. Raises ValueError if what the user wants cannot be had."""

    def serve(self, store: StoreServer) -> None:
        """The job's store serves."""

    def hears(self, event: Event) -> bool:
        """Something happened in the store; whether it is meant for the onlooker alone."""
        return False

    def started(self, name: str, host: str, rank: int = -1) -> None:
        """A worker is being started; its name is the one by which the store knows it."""

    def renumbered(self, ranks: Mapping[str, int]) -> None:
        """An elastic job has given its workers new ranks."""

    def exited(self, name: str, code: int) -> None:
        """A worker has ended."""

    def printed(self, label: str, channel: str, lines: List[bytes]) -> None:
        """A worker has printed lines."""

    def happened(self, kind: str, text: str) -> None:
        """Something worth telling."""

    def stacks(self, seconds: float = 3.0) -> Optional[str]:
        """What each rank does, with its Python stacks; waits for them. None: the ranks cannot be asked."""
        return None

    def close(self, error: Optional[str]) -> None:
        """The job has ended, well if there is no error."""
