"""A cluster whose ensemble has lost all data, restored from the copies on its brokers' disks."""

from __future__ import annotations

import errno
from contextlib import suppress
from random import Random

from simulation.ensemble import EnsembleConditions, SimulatedEnsemble
from soak.simulated.decisions import Decisions
from soak.simulated.plan import SESSION_TIMEOUT, TOPICS
from soak.simulated.stage import FOLDERS
from tests.simulation.scene import Scene, play

from barnabas.base.errors import ErrorCode
from barnabas.base.types import TopicPartition
from barnabas.broker.interbroker.errors import ChannelError
from barnabas.broker.metadata.backup import Backup, read_backup, restore
from barnabas.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

EVENTS = [TopicPartition("events", number) for number in range(6)]
#: seconds after which all brokers have a backup of the latest changes
KEPT = 10.0
#: seconds within which a cluster is whole after a start
WHOLE = 30.0


def backups(scene: Scene, broker: int) -> list[Backup]:
    """Return the backups in a broker's log directories."""
    return [read_backup(scene.cluster.brokers[broker].disk, folder) for folder in FOLDERS]


def latest(scene: Scene) -> Backup:
    """Return the backup that `barnabas cluster restore` would choose."""
    return max(
        (each for broker in scene.cluster.brokers for each in backups(scene, broker)), key=lambda b: b.age
    )


async def lose_ensemble(scene: Scene, backup: Backup) -> None:
    """Kill all brokers, and restore the backup to an empty ensemble for their next start."""
    cluster = scene.cluster
    told = list(scene.survey.stage.violations)
    for each in cluster.brokers.values():
        each.kill(power=False)
    cluster.decisions = Decisions(scene.survey.stage)
    cluster.ensemble = SimulatedEnsemble(
        Random(1),
        EnsembleConditions(session_timeout=SESSION_TIMEOUT),
        on_commit=cluster.decisions.committed,
    )
    store = await cluster.ensemble.open("restore")
    await restore(backup, store)
    await store.close()
    scene.survey.stage.violations[:] = told  # no controller has made those states
    for each in cluster.brokers.values():
        each._ensemble = cluster.ensemble


async def recycle(scene: Scene) -> None:
    """Delete the topic and create it again."""
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="events")], timeout_ms=3000)
    while True:
        with suppress(ChannelError):
            response = await scene.survey.ask_controller(request)
            if response.responses[0].error_code == ErrorCode.NONE:
                break
        await scene.survey.pause_for(0.2)
        await scene.survey.learn()
    await scene.survey.create("events", 6, 3, TOPICS["events"])


async def write(scene: Scene) -> None:
    """Write one record to each partition."""
    for partition in EVENTS:
        while await scene.produce(scene.leader_of(partition), partition) is not ErrorCode.NONE:
            await scene.survey.pause_for(0.2)


def ends(scene: Scene) -> list[tuple[int, list[int]]]:
    """Return each partition's high watermark and ISR."""
    found = []
    for partition in EVENTS:
        led = scene.broker(scene.leader_of(partition)).replicas.find(*partition)
        found.append((led.log.high_watermark, sorted(led.state.isr)))
    return found


def test_topic_that_was_made_anew_has_its_records_and_not_those_of_the_deleted_one() -> None:
    """One broker is away when the topic is deleted. It deletes its logs of the topic when it is back."""

    async def scenario(scene: Scene) -> None:
        await write(scene)
        await scene.survey.pause_for(KEPT)
        away = next(number for number in scene.cluster.brokers if not scene.broker(number).controller.active)
        scene.cluster.brokers[away].kill(power=False)
        await scene.survey.pause_for(2 * SESSION_TIMEOUT)
        await write(scene)
        await recycle(scene)
        await write(scene)
        await scene.survey.pause_for(KEPT)
        await lose_ensemble(scene, latest(scene))
        assert await scene.cluster.up()
        await scene.survey.pause_for(WHOLE)
        assert ends(scene) == [(1, [1, 2, 3])] * 6
        await write(scene)

    play(scenario)


def test_backup_from_before_a_topic_was_made_anew_takes_no_record_of_the_new_one() -> None:
    async def scenario(scene: Scene) -> None:
        await write(scene)
        await scene.survey.pause_for(KEPT)
        old = latest(scene)
        await recycle(scene)
        await write(scene)
        await scene.survey.pause_for(KEPT)
        new = latest(scene)
        await lose_ensemble(scene, old)
        assert await scene.cluster.up()
        await scene.survey.pause_for(WHOLE)
        assert {scene.leader_of(partition) for partition in EVENTS} == {-1}, (
            "nobody leads another topic's log"
        )
        await lose_ensemble(scene, new)
        assert await scene.cluster.up()
        await scene.survey.pause_for(WHOLE)
        assert ends(scene) == [(1, [1, 2, 3])] * 6

    play(scenario)


def test_cluster_is_made_again_though_disks_are_full_from_before_the_topic_to_after_the_start() -> None:
    """The backup on a full disk is old. The other disk of each broker has a later one."""

    async def scenario(scene: Scene) -> None:
        def full(operation: str, path: str) -> OSError | None:
            is_full = path.startswith(FOLDERS[0]) and operation == "write"
            return OSError(errno.ENOSPC, "the disk is full") if is_full else None

        await scene.survey.pause_for(KEPT)
        await write(scene)
        for each in scene.cluster.brokers.values():
            each.disk.refuse = full
        await scene.survey.create("late", 1, 3, TOPICS["events"])
        await scene.survey.pause_for(KEPT)
        assert ["late" in kept.topics for kept in backups(scene, 1)] == [False, True]
        await lose_ensemble(scene, latest(scene))
        assert await scene.cluster.up()
        await scene.survey.pause_for(WHOLE)
        for each in scene.cluster.brokers.values():
            each.disk.refuse = None
        await scene.survey.pause_for(WHOLE)
        assert ends(scene) == [(1, [1, 2, 3])] * 6
        late = TopicPartition("late", 0)
        assert await scene.produce(scene.leader_of(late), late) is ErrorCode.NONE

    play(scenario)


def test_replicas_on_a_failed_disk_are_waited_for_until_somebody_accepts_that_they_are_lost() -> None:
    async def scenario(scene: Scene) -> None:
        await write(scene)
        await scene.survey.pause_for(KEPT)
        await lose_ensemble(scene, latest(scene))
        failed = scene.cluster.brokers[2]
        failed.bad_folder = FOLDERS[1]
        assert await scene.cluster.up()
        await scene.survey.pause_for(WHOLE)
        waiting = [partition for partition in EVENTS if scene.leader_of(partition) == -1]
        assert 0 < len(waiting) < len(EVENTS)
        controller = next(
            each for each in scene.cluster.brokers.values() if each.broker and each.broker.controller.active
        )
        await controller.elect_uncleanly(waiting)
        await scene.survey.pause_for(5.0)
        assert [watermark for watermark, _ in ends(scene)] == [1] * 6
        for partition in waiting:
            assert scene.leader_of(partition) != 2
            assert await scene.produce(scene.leader_of(partition), partition) is ErrorCode.NONE

    play(scenario)
