"""The calm of a simulation: how long it lasts."""

from types import SimpleNamespace

import pytest
from simulation.virtual_time import VirtualTimeLoop, run_virtual
from soak.roles.common import Task
from soak.simulated.calm import LONGEST, SHORTEST, pass_calm
from soak.simulated.client import Client
from soak.simulated.stage import Stage, Trace

from barnabas.base.types import TopicPartition
from barnabas.broker.metadata.image import PartitionState


class Producer(Client):
    role = "produce"

    async def run(self) -> None:
        """Do nothing; the test notes what it has done."""


async def duration(*, acks_after: float = 0.0, in_sync: int = 2, has_orphans: bool = False) -> float:
    stage = Stage(1, Trace(), brokers=2)
    producer = Producer(stage, Task("produce-1", "produce", "simulated", "", "", 1, {}))
    states = {TopicPartition("events", 0): PartitionState((1, 2), (1, 2)[:in_sync], leader=1)}
    cluster = SimpleNamespace(brokers={}, running={}, decisions=SimpleNamespace(states=states))
    loop = stage._loop
    assert isinstance(loop, VirtualTimeLoop)
    producer.recorder.note("ack")  # of the faults: it does not count
    loop.call_later(acks_after + 0.001, producer.recorder.note, "ack")
    began = loop.time()
    await pass_calm(
        stage, cluster, SimpleNamespace(lives=[producer]), SimpleNamespace(has_orphans=has_orphans)
    )
    assert not stage.is_calm
    return loop.time() - began


def test_calm_is_short_if_everything_is_in_order():
    assert run_virtual(duration()) == pytest.approx(SHORTEST)


def test_calm_waits_for_the_acknowledgement_of_each_producer():
    assert run_virtual(duration(acks_after=6.0)) == pytest.approx(6.0, abs=0.3)


@pytest.mark.parametrize("what", [{"acks_after": 60.0}, {"in_sync": 1}, {"has_orphans": True}], ids=repr)
def test_calm_is_long_enough_for_the_checker_if_something_stays_wrong(what):
    assert run_virtual(duration(**what)) >= LONGEST
