"""Creates an environment in memory and in virtual time, from a seed."""

from __future__ import annotations

import asyncio
from random import Random

from barnabas.base.environment.blocking import Blocking
from barnabas.base.environment.clock import Clock
from barnabas.base.environment.environment import Environment
from barnabas.base.environment.filesystem import FileSystem
from barnabas.base.environment.network import Network
from simulation.blocking import VirtualThreads
from simulation.clocks import VirtualClock
from simulation.faulty_disk import FaultyDisk
from simulation.network import SimulatedNetwork


def simulated_environment(
    seed: object = 0,
    *,
    clock: Clock | None = None,
    filesystem: FileSystem | None = None,
    blocking: Blocking | None = None,
    network: Network | None = None,
) -> Environment:
    """Return the environment of one broker. Each part that is not given is created in memory.

    Args:
        seed: determines all random numbers; a number or a text. Each part has its own random numbers, so one
            part does not affect another.
        clock: by default, the time of the running loop.
    """
    threads = VirtualThreads(Random(f"{seed} threads"))
    clock = clock or VirtualClock(asyncio.get_running_loop(), threads)
    return Environment(
        clock=clock,
        filesystem=filesystem or FaultyDisk(clock),
        blocking=blocking or threads,
        network=network or SimulatedNetwork(Random(f"{seed} network")).host("broker"),
        random=Random(f"{seed} broker"),
    )
