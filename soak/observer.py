"""Asks a cluster under faults for its leaders, in a thread, because an answer can take long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from barnabas.base.errors import BarnabasError
from barnabas.base.types import TopicPartition
from barnabas.client.moves import Moves, PartitionReplicas

#: seconds between two questions, and how long one may take
_PAUSE, _PATIENCE = 1.0, 5.0


class Observer:
    """The latest known controller and leaders of a cluster.

    Args:
        bootstrap: addresses of the cluster's brokers; the observer asks any of them.
    """

    def __init__(self, bootstrap: str) -> None:
        self._moves = Moves(bootstrap, timeout=_PATIENCE)
        self._holders: Mapping[TopicPartition, PartitionReplicas] = {}
        self.controller: int | None = None
        self._wanted: Callable[[], object] | None = None
        self._must_end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._must_end.set()
        if self._thread.is_alive():
            self._thread.join()

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the leader of the partition in the last answer; None if there is none."""
        found = self._holders.get(TopicPartition(topic, partition))
        return found.leader if found is not None else None

    def have_done(self, work: Callable[[], object]) -> None:
        """Execute `work` in this thread, too. A stop drops work that has not begun."""
        self._wanted = work

    def _run(self) -> None:
        while not self._must_end.wait(_PAUSE):
            work, self._wanted = self._wanted, None
            if work is not None:
                work()
            try:
                self.controller = self._moves.cluster().controller
                self._holders = self._moves.replicas_of()
            except (BarnabasError, OSError):
                continue  # the latest known ones stay
