"""Checks that a broker reports its isolation only after enough failed checks of the present controller."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile

from barnabas.base.types import BrokerId
from barnabas.broker.server.isolation import LOOKS, IsolationWatch
from soak.simulated.bugs import replaced
from soak.simulated.stage import Stage

#: failed checks, one after the other, before a controller or another broker is isolated
_OF_CONTROLLER, _OF_ANOTHER = LOOKS + 1, LOOKS + 2
#: the same of a broker that has reached another one meanwhile
_OF_CONNECTED = 2 * LOOKS + 2


@dataclass(frozen=True, slots=True)
class _Check:
    """A check of a broker.

    Attributes:
        controllers: the controllers that the broker knew when the check began, and when it ended.
        reached: the brokers that answered.
    """

    controllers: tuple[BrokerId, BrokerId]
    reached: frozenset[BrokerId]

    def has_failed(self, controller: BrokerId, own: BrokerId) -> bool:
        """Return whether `controller` led the cluster during the check, and no answer that counts came."""
        wanted = self.reached if own == controller else self.reached & {controller}
        return self.controllers == (controller, controller) and not wanted


class Isolating:
    """Records the checks of each broker, and judges each report of an isolation.

    The broker's own counts are not used. A check that began before the broker became the controller, or ended
    after another one did, shows nothing about the present controller.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        #: the last checks of each process of a broker
        self._checks: defaultdict[IsolationWatch, deque[_Check]] = defaultdict(
            lambda: deque(maxlen=_OF_CONNECTED)
        )

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Observe each check of the other brokers, and each change of the result."""
        reach, change = IsolationWatch._reached, IsolationWatch._set

        async def reaching(watch: IsolationWatch, brokers: Sequence[BrokerId]) -> set[BrokerId]:
            before = watch._view.image.controller_id
            reached = await reach(watch, brokers)
            check = _Check((before, watch._view.image.controller_id), frozenset(reached))
            self._checks[watch].append(check)
            return reached

        def changing(watch: IsolationWatch, *, isolated: bool) -> None:
            if isolated and not watch.is_isolated:
                self._check_isolated(watch)
            change(watch, isolated=isolated)

        with replaced((IsolationWatch, "_reached", reaching), (IsolationWatch, "_set", changing)):
            yield

    def _check_isolated(self, watch: IsolationWatch) -> None:
        own, controller = watch._view.node_id, watch._view.image.controller_id
        last = self._checks[watch]
        failed = list(takewhile(lambda check: check.has_failed(controller, own), reversed(last)))
        if own == controller:
            needed = _OF_CONTROLLER
        else:
            needed = _OF_CONNECTED if any(check.reached for check in failed) else _OF_ANOTHER
        if len(failed) < needed:
            self._stage.complain(
                "isolated-early",
                f"broker {own} counts itself isolated from controller {controller} after {len(failed)} of "
                f"{needed} checks: {list(last)}",
            )
