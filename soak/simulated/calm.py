"""The calm: the clients continue without faults, until each producer has made progress and the cluster is
stable.
"""

from __future__ import annotations

import asyncio

from soak.checker.groups import PRODUCERS
from soak.simulated.cast import Cast
from soak.simulated.client import Client
from soak.simulated.cluster import SimulatedCluster
from soak.simulated.convergence import is_whole
from soak.simulated.invariants import Invariants
from soak.simulated.stage import Stage

#: seconds of virtual time; at the longest, the checker reports a producer without an acknowledgement
SHORTEST, LONGEST = 4.0, 11.0
_PAUSE = 0.25


async def pass_calm(stage: Stage, cluster: SimulatedCluster, cast: Cast, invariants: Invariants) -> None:
    """Wait until nothing of the faults is left that only more time can end, for at most `LONGEST` seconds.

    - Each producer has an acknowledgement from the calm.
    - All replicas are in sync.
    - No group has a member whose client is dead.
    """
    began = stage.now()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LONGEST
    stage.is_calm = True
    await asyncio.sleep(SHORTEST)
    while loop.time() < deadline and not (
        all(_has_progressed(client, began) for client in cast.lives if client.is_alive)
        and is_whole(cluster)
        and not invariants.has_orphans
    ):
        await asyncio.sleep(_PAUSE)
    stage.is_calm = False


def _has_progressed(client: Client, since: int) -> bool:
    """Return whether a client is no producer, or has got an acknowledgement since this time."""
    if client.role not in PRODUCERS:
        return True
    for event in reversed(client.recorder.events):
        if event["at"] <= since:
            break
        if event["what"] == "ack":
            return True
    return False
