"""The command `barnabas ship`. test_ship.py tests the shipper itself."""

import json
import threading

import pytest

from barnabas.client.ship import Shipper


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "app.log"
    path.write_text("2024-01-01 12:00:00 ERROR app: boom\n\tat x.y\n2024-01-01 12:00:01 INFO app: fine\n")
    return path


@pytest.fixture
def ship(barnabas, barnabas_topic, tmp_path):
    def run(*arguments, code=0):
        state = tmp_path / "state"
        return barnabas("ship", *arguments, "--topic", barnabas_topic, "--once", "--state", state, code=code)

    return run


def test_files_become_records_and_the_totals_are_said(barnabas, barnabas_topic, ship, log):
    assert "shipped 2 records of 3 lines" in ship(log).err
    records = [json.loads(line) for line in barnabas("consume", barnabas_topic, "-e").lines]
    assert [(record["level"], record["message"]) for record in records] == [
        ("ERROR", "boom\n\tat x.y"),
        ("INFO", "fine"),
    ]


def test_the_totals_come_as_json(ship, log):
    assert ship(log, "--json").json() == {
        "files": 1,
        "lines": 3,
        "records": 2,
        "records_before": 0,
        "bytes": log.stat().st_size,
        "warnings": [],
    }
    assert ship(log, "--json").json()["records_before"] == 2


def test_a_file_and_its_rotations_can_be_one_named_source(barnabas, barnabas_topic, ship, log, tmp_path):
    older = tmp_path / "app.log.1"
    older.write_text("first of all\n")
    ship(log, older, "--source", "the-app")
    records = [json.loads(line) for line in barnabas("consume", barnabas_topic, "-e").lines]
    assert [record["source"] for record in records] == ["the-app"] * 3
    assert records[0]["message"] == "first of all"


def test_one_name_for_two_files_is_wrong_usage(ship, log, tmp_path):
    (tmp_path / "other.log").write_text("x\n")
    assert "no rotation of" in ship(log, tmp_path / "other.log", "--source", "s", code=2).err


def test_a_file_that_is_not_there_is_named(ship, tmp_path):
    assert "absent.log does not exist" in ship(tmp_path / "absent.log", code=1).err


def test_lines_that_were_lost_are_warned_of(ship, log):
    ship(log)
    log.unlink()
    log.write_text("a new file\n")
    outcome = ship(log)
    assert "warning:" in outcome.err
    assert "is gone" in outcome.err


def test_a_second_shipper_of_the_same_file_is_told(barnabas_broker, barnabas_topic, ship, log, tmp_path):
    seen = threading.Event()
    first = Shipper(
        barnabas_broker.bootstrap_servers,
        barnabas_topic,
        [log],
        follow=True,
        state_dir=tmp_path / "state",
        on_progress=lambda progress: seen.set(),
    )
    thread = threading.Thread(target=first.run)
    thread.start()
    try:
        assert seen.wait(60)
        assert "is being shipped to this topic by another process" in ship(log, code=1).err
    finally:
        first.stop()
        thread.join(60)
