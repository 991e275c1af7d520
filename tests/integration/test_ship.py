"""Ships log files: every record once, despite rotations, stops, kills and lost data."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from barnabas.base.types import TopicPartition
from barnabas.client import ClientError
from barnabas.client.ship import Shipper
from barnabas.client.ship_state import HEADER, decode_header
from barnabas.testing import BarnabasBroker


@pytest.fixture
def log(tmp_path):
    return tmp_path / "app.log"


@pytest.fixture
def ship(barnabas_broker, barnabas_topic, tmp_path):
    """Ship files to their end, and return the shipper's progress."""

    def run(*files, topic=barnabas_topic, state="state", **options):
        servers = options.pop("servers", barnabas_broker.bootstrap_servers)
        return Shipper(servers, topic, files, state_dir=tmp_path / state, **options).run()

    return run


@pytest.fixture
def shipped(barnabas_broker, barnabas_topic):
    """Return the messages of a source in the topic, in order. Fail if their numbers have gaps or repeats."""

    def read(source, topic=barnabas_topic, broker=barnabas_broker):
        with broker.consumer() as consumer:
            places = consumer.partitions(topic)
            ends = {place: consumer.watermarks(place)[1] for place in places}
            consumer.assign(dict.fromkeys(places, 0))
            records = [
                record
                for batch in consumer.read_until({place: end for place, end in ends.items() if end})
                for record in batch
                if record.key_text == str(source)
            ]
        numbers = [decode_header(dict(record.headers)[HEADER])[0] for record in records]
        assert sorted(numbers) == list(range(1, len(numbers) + 1))
        assert numbers == sorted(numbers) or len(places) > 1  # a source may have moved to another partition
        return [record.json()["message"] for record in records]

    return read


def write(path, *lines):
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def rotate(path):
    for number in range(20, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.rename(path.with_name(f"{path.name}.{number + 1}"))
    path.rename(path.with_name(f"{path.name}.1"))


def copy_truncate(path):
    for number in range(20, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.rename(path.with_name(f"{path.name}.{number + 1}"))
    shutil.copy(path, path.with_name(f"{path.name}.1"))
    os.truncate(path, 0)


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


def test_lines_become_json_records_keyed_by_their_source(barnabas_broker, barnabas_topic, ship, log):
    write(log, "2024-01-01 12:00:00 ERROR app: boom", "  at somewhere", "2024-01-01 12:00:01 INFO app: fine")
    progress = ship(log)
    assert (progress.lines, progress.acknowledged) == (3, 2)
    first, second = barnabas_broker.consume(barnabas_topic, 2)
    assert first.key_text == str(log)
    assert first.json() == {
        "source": str(log),
        "level": "ERROR",
        "message": "boom\n  at somewhere",
        "timestamp": "2024-01-01T12:00:00",
        "logger": "app",
    }
    assert second.json()["message"] == "fine"
    assert abs(first.timestamp_ms / 1000 - time.time()) < 60  # the time of shipping: retention counts from it


def test_the_source_can_be_named(barnabas_broker, barnabas_topic, tmp_path, log):
    write(log, "one")
    Shipper(barnabas_broker.bootstrap_servers, barnabas_topic, {log: "app"}, state_dir=tmp_path / "s").run()
    assert barnabas_broker.consume(barnabas_topic, 1)[0].json()["source"] == "app"


def test_real_logs_arrive_line_for_line(barnabas_broker, ship, shipped, real_logs):
    if not real_logs:
        pytest.skip("the samples of real logs are not on this machine")
    barnabas_broker.create_topic("real-logs", 3)
    progress = ship(*real_logs, topic="real-logs")
    assert progress.acknowledged == 8000
    for file in real_logs:
        lines = file.read_bytes().decode().split("\r\n")
        messages = shipped(file, topic="real-logs")
        assert len(messages) == 2000
        assert all(message in line for message, line in zip(messages, lines, strict=False))


def test_a_second_run_ships_only_what_is_new(ship, shipped, log):
    write(log, "one", "two")
    ship(log)
    write(log, "three")
    progress = ship(log)
    assert (progress.acknowledged, progress.found) == (1, 2)
    assert shipped(log) == ["one", "two", "three"]


def test_without_the_state_the_topic_says_how_far_it_came(ship, shipped, log, tmp_path):
    write(log, "one", "two")
    ship(log)
    shutil.rmtree(tmp_path / "state")
    write(log, "three")
    ship(log)
    assert shipped(log) == ["one", "two", "three"]


def test_a_topic_made_anew_is_filled_anew(barnabas_broker, ship, shipped, log):
    barnabas_broker.create_topic("made-anew")
    write(log, "one")
    ship(log, topic="made-anew")
    barnabas_broker.admin().delete_topic("made-anew")
    barnabas_broker.create_topic("made-anew")
    ship(log, topic="made-anew")
    assert shipped(log, topic="made-anew") == ["one"]


def test_records_that_retention_removed_are_not_shipped_again(barnabas_broker, barnabas_topic, ship, log):
    write(log, "one", "two")
    ship(log)
    barnabas_broker.admin().delete_records({TopicPartition(barnabas_topic, 0): -1})
    write(log, "three")
    assert ship(log).acknowledged == 1


def test_records_that_the_topic_lost_are_shipped_again(ship, shipped, log, tmp_path):
    write(log, "one", "two")
    ship(log)
    [state] = (tmp_path / "state").glob("*/*.json")
    document = json.loads(state.read_text())
    state.write_text(json.dumps({**document, "number": 9, "offset": 77}))  # more than the topic has
    write(log, "three")
    ship(log)
    assert shipped(log) == ["one", "two", "three"]


def test_rotated_files_given_along_are_read_first(ship, shipped, log):
    write(log, "one")
    rotate(log)
    write(log, "two")
    rotate(log)
    write(log, "three")
    progress = ship(log, log.with_name("app.log.1"), log.with_name("app.log.2"))
    assert progress.files == 1
    assert shipped(log) == ["one", "two", "three"]


def test_rotations_between_two_runs_lose_and_repeat_nothing(ship, shipped, log):
    write(log, "one")
    ship(log)
    write(log, "two")
    rotate(log)
    write(log, "three")
    rotate(log)
    write(log, "four")
    ship(log)
    assert shipped(log) == ["one", "two", "three", "four"]


def test_the_last_line_needs_no_newline(ship, shipped, log):
    log.write_text("one\ntwo")
    ship(log)
    assert shipped(log) == ["one", "two"]


def test_bytes_that_are_not_utf_8_are_kept_visible(ship, shipped, log):
    log.write_bytes(b"caf\xe9\n")
    ship(log)
    assert shipped(log) == ["caf\\xe9"]


def test_following_sees_growth_and_rotations_of_each_kind(
    barnabas_broker, barnabas_topic, shipped, log, tmp_path
):
    log.touch()
    shipper = Shipper(
        barnabas_broker.bootstrap_servers,
        barnabas_topic,
        [log],
        follow=True,
        state_dir=tmp_path / "s",
        poll_interval=0.01,
        flush_after=0.05,
    )
    thread = threading.Thread(target=shipper.run)
    thread.start()

    def seen(lines):
        return lambda: shipper.progress.lines == lines

    try:
        written = []
        for number in range(15):
            lines = [f"{number}.{n}" for n in range(20)]
            write(log, *lines)
            written += lines
            if number == 0:
                wait_for(seen(20))  # it has the file open
            elif number % 5 == 2:
                rotate(log)
            elif number % 5 == 4:
                # Lines of the file must have been seen for its copy to be known.
                wait_for(seen(len(written)))
                copy_truncate(log)
        wait_for(lambda: shipper.progress.acknowledged == len(written))
    finally:
        shipper.stop()
        thread.join(60)
    assert shipped(log) == written
    assert shipper.progress.warnings == []


def test_two_shippers_of_one_file_are_one_too_many(barnabas_broker, barnabas_topic, ship, log, tmp_path):
    write(log, "one")
    first = Shipper(
        barnabas_broker.bootstrap_servers, barnabas_topic, [log], follow=True, state_dir=tmp_path / "state"
    )
    thread = threading.Thread(target=first.run)
    thread.start()
    try:
        wait_for(lambda: first.progress.sent or first.progress.lines)
        with pytest.raises(ClientError, match="another process"):
            ship(log)
    finally:
        first.stop()
        thread.join(60)


def test_a_record_the_broker_refuses_stops_everything_behind_it(
    barnabas_broker, barnabas_topic, ship, shipped, log
):
    admin = barnabas_broker.admin()
    admin.alter_configs("topic", barnabas_topic, set={"max.message.bytes": "2000"})
    write(log, "one", "y" * 5000, "three")
    with pytest.raises(ClientError, match=r"(?i)rejected a record permanently .*too.large"):
        ship(log, settings={"compression.type": "none", "batch.num.messages": 1})
    assert shipped(log) in ([], ["one"])
    admin.alter_configs("topic", barnabas_topic, delete=["max.message.bytes"])
    ship(log)
    assert shipped(log) == ["one", "y" * 5000, "three"]


@pytest.mark.parametrize(
    ("files", "words"),
    [([], "no files"), (["absent.log"], "does not exist"), (["."], "is a directory")],
)
def test_files_that_cannot_be_shipped_are_named(tmp_path, monkeypatch, files, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ClientError, match=words):
        Shipper("127.0.0.1:1", "t", files)


def test_two_files_of_one_name_are_refused(log):
    write(log, "x")
    other = log.with_name("other.txt")
    write(other, "x")
    with pytest.raises(ClientError, match="one source name"):
        Shipper("127.0.0.1:1", "t", {log: "same", other: "same"})


def test_a_shipper_killed_again_and_again_loses_and_repeats_nothing(
    barnabas_broker, barnabas_topic, shipped, log, tmp_path
):
    def some(count):
        lines.extend(
            f"line {number} {'z' * (number % 90)}." for number in range(len(lines), len(lines) + count)
        )
        write(log, *lines[-count:])

    lines = []
    chance = random.Random(7)
    some(10_000)
    command = [sys.executable, "-m", "barnabas.cli", "ship", str(log), "--topic", barnabas_topic]
    command += ["--state", str(tmp_path / "state"), "--bootstrap-server", barnabas_broker.bootstrap_servers]
    admin = barnabas_broker.admin()

    def stored():
        return admin.offsets([TopicPartition(barnabas_topic, 0)], "latest")[(barnabas_topic, 0)]

    killed_midway = life = 0
    while life < 4 or not killed_midway:
        assert life < 20, "it has always shipped everything before it was killed"
        before = stored()
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_for(lambda before=before: stored() > before)
        time.sleep(chance.random() * 0.1)
        process.kill()
        process.wait()
        killed_midway += stored() < len(lines)
        if life == 1:
            rotate(log)
        elif life == 2:
            shutil.rmtree(tmp_path / "state")
        elif life == 3:
            copy_truncate(log)
        some(6_000)
        life += 1
    subprocess.run([*command, "--once"], check=True, stderr=subprocess.DEVNULL, timeout=60)
    assert shipped(log) == lines


def test_a_broker_killed_under_a_shipper_loses_and_repeats_nothing(shipped, log, tmp_path):
    lines = [f"line {number}" for number in range(15_000)]
    write(log, *lines)
    with BarnabasBroker(mode="process") as broker:
        broker.create_topic("t")
        shipper = Shipper(
            broker.bootstrap_servers,
            "t",
            [log],
            state_dir=tmp_path / "s",
            settings={"linger.ms": 1, "batch.num.messages": 50, "reconnect.backoff.max.ms": 100},
        )
        thread = threading.Thread(target=shipper.run)
        thread.start()
        for target in (1_000, 6_000):
            wait_for(lambda target=target: shipper.progress.acknowledged >= target)
            broker.kill()
            broker.start()
        thread.join(60)
        assert not thread.is_alive()
        assert shipper.progress.acknowledged == len(lines)
        assert shipped(log, topic="t", broker=broker) == lines


def test_a_signal_ends_following_with_all_acknowledged(
    barnabas_broker, barnabas_topic, shipped, log, tmp_path
):
    write(log, "one", "two")
    command = [sys.executable, "-m", "barnabas.cli", "ship", str(log), "--topic", barnabas_topic, "--json"]
    command += ["--state", str(tmp_path / "state"), "--bootstrap-server", barnabas_broker.bootstrap_servers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_for(lambda: list(tmp_path.glob("state/*/*.json")))
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    document = json.loads(out)
    assert document["records"] == len(shipped(log))
    assert document["files"] == 1


def test_a_topic_that_has_got_more_partitions_loses_and_repeats_nothing(barnabas_broker, ship, shipped, log):
    barnabas_broker.create_topic("growing", 1)
    write(log, "one", "two")
    ship(log, topic="growing")
    barnabas_broker.admin().add_partitions("growing", 7)
    write(log, "three")
    ship(log, topic="growing")
    write(log, "four")
    ship(log, topic="growing", state="other-state")
    assert sorted(shipped(log, topic="growing")) == ["four", "one", "three", "two"]
