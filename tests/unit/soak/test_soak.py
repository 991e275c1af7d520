"""Parts of the soak: the schedule, the files of histories, the excuses."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from types import SimpleNamespace

import pytest
from bench.peers import tree_of
from confluent_kafka import Producer
from soak import cluster_nemesis, witness
from soak.__main__ import parse
from soak.checker import check, sift
from soak.cluster import broker_settings
from soak.disk import LimitedDisk, NoDiskError
from soak.history import Recorder, read
from soak.nemesis import BROKER, FILL, FILL_AND_KILL, KILL, ZOMBIE, Fault, member, schedule
from soak.plan import settings, slots
from soak.roles.common import Draft, identity
from soak.roles.kept_epochs import PAUSE, SILENCE, KeptEpochs
from soak.roles.metadata import newest_epochs
from soak.storm import Machine
from tests.unit.soak.world import World

from barnabas.testing import BarnabasBroker

SLOTS = list(slots(has_java=True, has_consumer_protocol=True))
A = ("a", 0)


def test_seed_gives_the_same_faults_again():
    assert schedule(7, 600, SLOTS, 6) == schedule(7, 600, SLOTS, 6) != schedule(8, 600, SLOTS, 6)


def test_faults_are_over_in_time_and_those_of_the_broker_do_not_overlap():
    faults = schedule(7, 600, SLOTS, 6)
    assert all(fault.at + fault.seconds <= 600 for fault in faults)
    ends = 0.0
    for fault in faults:
        if fault.target == BROKER:
            assert fault.at >= ends
            ends = fault.at + fault.seconds


def test_without_a_disk_to_fill_the_other_faults_are_the_same():
    faults = schedule(7, 3600, SLOTS, 6)
    filled = [fault for fault in faults if fault.kind in (FILL, FILL_AND_KILL)]
    assert {fault.kind for fault in filled} == {FILL, FILL_AND_KILL}
    assert schedule(7, 3600, SLOTS, 6, has_disk=False) == [f for f in faults if f not in filled]


def test_tombstones_of_a_cluster_outlive_the_absence_of_a_replica():
    """Seed 3001: a paused broker kept values whose tombstones were gone elsewhere after a second."""
    of_cluster = broker_settings(settings(0))
    assert of_cluster["log.cleaner.delete.retention.ms"] == "120000"
    assert of_cluster["log.cleaner.backoff.ms"] == "1000"


def test_several_brokers_of_a_machine_are_also_killed_one_by_one():
    faults = schedule(7, 600, SLOTS, 6, brokers=2)
    members = [fault for fault in faults if fault.target in (member(1), member(2))]
    assert {fault.target for fault in members} == {member(1), member(2)}
    assert {fault.kind for fault in members} == {KILL}
    assert len(members) > 50
    assert [fault for fault in faults if fault not in members] == schedule(7, 600, SLOTS, 6)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")
def test_a_kill_of_one_broker_of_a_machine_ends_its_process_alone():
    member_code = "[sys.executable, '-c', 'input()', '--member', str(number)]"
    start = f"""if True:
        import subprocess, sys
        def run(number): return subprocess.Popen({member_code}, stdin=subprocess.PIPE)
        first, second = run(1), run(2)
        print("ready", flush=True)
        print(second.wait(), flush=True)
        input()
    """
    with subprocess.Popen(
        [sys.executable, "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as supervisor:
        assert supervisor.stdout.readline() == "ready\n"
        machine = Machine(SimpleNamespace(pid=supervisor.pid, is_running=True), None)
        machine.begin(Fault(0, KILL, member(2), 0))()
        assert supervisor.stdout.readline() == "-9\n"
        assert len(tree_of(supervisor.pid)) == 2
        supervisor.communicate("\n")


def test_disk_that_is_filled_has_no_room_until_it_is_freed_and_leaves_what_it_held(tmp_path):
    folder = tmp_path / "disk"
    try:
        disk = LimitedDisk(folder, size=1 << 20)
    except NoDiskError as reason:
        pytest.skip(f"no file system can be mounted here: {reason}")
    try:
        disk.fill(left=8192)
        with pytest.raises(OSError, match="No space"):
            (folder / "large").write_bytes(bytes(20_000))
        disk.free()
        (folder / "small").write_bytes(b"small")
    finally:
        disk.close()
    assert not folder.is_mount()
    assert (folder / "small").read_bytes() == b"small"
    assert {path.name for path in folder.iterdir()} == {"small", "large"}


def test_record_is_known_by_its_value_and_a_tombstone_by_its_header():
    for tombstone in (False, True):
        draft = Draft("p:1", A, "k", tombstone)
        assert identity(draft.value, draft.headers) == "p:1"


def test_only_clients_with_a_transactional_id_become_zombies():
    ids = {slot.name for slot in SLOTS if "transactional_id" in slot.task}
    zombies = {fault.target for fault in schedule(7, 3600, SLOTS, 6) if fault.kind == ZOMBIE}
    assert zombies
    assert zombies <= ids


def test_library_and_protocol_that_are_not_there_are_left_out():
    fewer = list(slots(has_java=False, has_consumer_protocol=False))
    assert {slot.client for slot in SLOTS} - {slot.client for slot in fewer} == {"java"}
    assert all(slot.task.get("protocol", "classic") == "classic" for slot in fewer)


def test_line_that_its_process_could_not_finish_is_passed_over(tmp_path):
    recorder = Recorder(tmp_path / "p.jsonl", name="p")
    recorder.note("calm")
    with (tmp_path / "p.jsonl").open("a") as file:
        file.write(json.dumps({"what": "send", "at": 1})[:-3])
    (events,) = read(tmp_path)
    assert [event["what"] for event in events] == ["process", "calm"]


@pytest.mark.parametrize("client", ["confluent", "aiokafka"])
@pytest.mark.parametrize("offset", [-1, 0])
@pytest.mark.parametrize("made_before", [False, True])
def test_only_librdkafka_may_take_a_record_for_delivered_while_its_topic_is_made_anew(
    client, offset, made_before
):
    world = World(A)
    producer = world.producer(client=client)
    topic = ("recycled", 0)
    world.create(topic)
    world.remove(topic)
    if made_before:
        world.create(topic)
    world.logs[topic] = []
    producer.send(topic)
    world.events("p", "ack")[0]["offset"] = offset
    if not made_before:
        world.create(topic)
    world.logs[topic] = []
    unexcused, excused = sift(check(world.survey().histories.values()))
    is_excused = client == "confluent" and offset == -1 and not made_before
    assert [finding.kind for finding in unexcused] == ([] if is_excused else ["lost-write"])
    assert len(excused) == is_excused


@pytest.mark.parametrize("client", ["kafka_python", "confluent"])
@pytest.mark.parametrize("first", [2, 1])
def test_only_kafka_python_may_go_on_where_it_was(client, first):
    """This happens after a rebalance in which the consumer keeps the partition without a commit."""
    world = World(A)
    producer, consumer = world.producer(), world.consumer("c", "g", client=client)
    consumer.assign(A)
    for _ in range(2):
        producer.send(A)
    consumer.poll()
    consumer.revoke()
    consumer.assign(A)
    producer.send(A)
    consumer.positions[A] = first
    consumer.poll()
    consumer.commit()
    unexcused, excused = sift(check(world.survey().histories.values()))
    is_excused = client == "kafka_python" and first == 2
    assert [finding.kind for finding in unexcused] == ([] if is_excused else ["offset-jump"])
    assert len(excused) == is_excused


@pytest.mark.parametrize("client", ["kafka_python", "confluent"])
@pytest.mark.parametrize(
    "answered, states, is_brokers",
    [
        (True, ["Ongoing", "Ongoing"], False),
        (True, ["PrepareCommit", "CompleteCommit"], False),
        (True, [""], False),
        (True, ["PrepareCommit", "PrepareCommit"], True),
        (False, [], True),
        (False, ["Ongoing"], True),
    ],
)
def test_a_client_that_waits_for_ever_is_excused_only_if_the_broker_does_not_keep_it_waiting(
    client, answered, states, is_brokers
):
    world = World(A)
    world.producer(client=client)
    world.note("p", "gave_up", why="a step", seconds=80, answered=answered, states=states)
    unexcused, excused = sift(check(world.survey().histories.values()))
    is_excused = client == "kafka_python" and not is_brokers
    assert [finding.kind for finding in unexcused] == ([] if is_excused else ["stalled-client"])
    assert len(excused) == is_excused


@pytest.mark.parametrize(
    "client, answered, kept, is_removed, is_excused",
    [
        ("confluent", True, [["a", 0, 1, 0]], True, True),
        ("confluent", True, [["a", 0, 1, 1]], True, False),
        ("confluent", True, [["a", 0, 1, 0]], False, False),
        ("confluent", True, [["a", 0, 1, 0], ["b", 0, 1, 0]], True, False),
        ("confluent", True, [], True, False),
        ("confluent", False, [["a", 0, 1, 0]], True, False),
        ("aiokafka", True, [["a", 0, 1, 0]], True, False),
    ],
)
def test_a_producer_that_keeps_the_epochs_of_a_deleted_topic_is_excused(
    client, answered, kept, is_removed, is_excused
):
    world = World(A)
    producer = world.producer(client=client)
    world.remove(A)
    world.create(A)
    producer.send(A)
    if is_removed:
        world.remove(A)
        world.create(A)
    said = {"why": "old epochs", "seconds": 11, "answered": answered, "states": [""]}
    world.note("p", "gave_up", **said, kept=kept)
    unexcused, excused = sift(check(world.survey().histories.values()))
    assert [finding.kind for finding in unexcused] == ([] if is_excused else ["stalled-client"])
    assert len(excused) == is_excused


STATISTICS = """{"topics": {"a": {"partitions": {
    "0": {"partition": 0, "leader_epoch": 3}, "1": {"partition": 1, "leader_epoch": 0},
    "-1": {"partition": -1, "leader_epoch": -1}}}}}"""


def test_a_producer_keeps_old_epochs_when_two_looks_without_an_outcome_between_find_them():
    now = 0.0
    brokers = {0: 0, 1: 0}
    epochs = KeptEpochs("a", lambda: brokers, lambda: now)
    epochs.read(STATISTICS)
    assert epochs.look(heard_at=0.0) == []
    now = SILENCE
    assert epochs.look(heard_at=0.0) == []
    assert epochs.look(heard_at=0.0) == [], "it does not look again at once"
    now += PAUSE
    assert epochs.look(heard_at=0.0) == [(0, 3, 0)]
    now += SILENCE + 1
    assert epochs.look(heard_at=1.0) == [], "there was an outcome since the first look"
    now += PAUSE
    brokers = {}
    assert epochs.look(heard_at=1.0) == [], "the brokers do not know the topic now"
    now += PAUSE
    brokers = {0: 3, 1: 1}
    assert epochs.look(heard_at=1.0) == [], "the brokers have the same epoch, or a higher one"
    now += PAUSE
    brokers = {0: 0, 1: 0}
    assert epochs.look(heard_at=1.0) == [], "it is the first look that finds an old epoch again"


def test_the_newest_epochs_are_those_of_more_than_half_of_the_brokers():
    with BarnabasBroker() as broker:
        broker.create_topic("a")
        server = broker.bootstrap_servers
        assert newest_epochs(server, "a") == {0: 0}
        assert newest_epochs(server, "b") == {}
        assert newest_epochs(f"{server},127.0.0.1:1", "a") == {}


def test_the_witness_of_a_client_that_waits_asks_the_broker_itself(monkeypatch):
    monkeypatch.setattr(witness, "PAUSE", 0.01)
    with BarnabasBroker() as broker:
        address = broker.bootstrap_servers
        producer = Producer({"bootstrap.servers": address, "transactional.id": "t"})
        producer.init_transactions(60)
        assert witness.ask(address, "t") == {"answered": True, "states": ["Empty", "Empty"]}
        assert witness.ask(address, "") == {"answered": True, "states": [""]}
    monkeypatch.setattr(witness, "SECONDS", 1.0)
    assert witness.ask(address, "") == {"answered": False, "states": []}


def test_a_clusters_schedule_follows_from_its_seed_and_ends_in_time():
    faults = cluster_nemesis.schedule(7, 600, SLOTS, 6)
    assert faults == cluster_nemesis.schedule(7, 600, SLOTS, 6) != cluster_nemesis.schedule(8, 600, SLOTS, 6)
    assert all(fault.at + fault.seconds <= 600 for fault in faults)
    for track in cluster_nemesis.TRACKS:
        of_track = [fault for fault in faults if fault.target == track]
        assert all(one.at + one.seconds <= next_.at for one, next_ in pairwise(of_track))
    of_cluster = [fault for fault in faults if fault.target in cluster_nemesis.TRACKS]
    assert any(one.at + one.seconds > next_.at for one, next_ in pairwise(of_cluster)), "they overlap"
    assert {fault.kind for fault in cluster_nemesis.schedule(7, 36_000, SLOTS, 6)} >= {*cluster_nemesis.KINDS}


def test_no_fault_of_a_cluster_is_most_of_a_soak():
    faults = cluster_nemesis.schedule(7, 900, SLOTS, 6)
    assert max(fault.seconds for fault in faults if fault.target in cluster_nemesis.TRACKS) < 300
    assert max(fault.seconds for fault in cluster_nemesis.schedule(7, 36_000, SLOTS, 6)) >= 300


@pytest.mark.parametrize("word", ["down for minutes", "clock"])
def test_faults_that_are_asked_for_are_the_only_ones_though_one_is_most_of_a_soak(word):
    asked = [
        f for f in cluster_nemesis.schedule(7, 360, SLOTS, 6, [word]) if f.target in cluster_nemesis.TRACKS
    ]
    assert asked
    assert all(word in fault.kind for fault in asked)


def test_faults_that_nobody_knows_are_refused_with_those_that_there_are(capsys):
    with pytest.raises(SystemExit):
        parse(["--brokers", "3", "--faults", "earthquake"])
    assert "set a clock" in capsys.readouterr().err
