"""The files that the demo chooses, their topics, and the length of its windows."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from demo import APP, DB, INGRESS, logs
from demo.folder import FolderError, prepare
from demo.logs import NoLogsError, by_topic, check_logs, find_logs
from demo.windows import choose_window, describe, span


def write_log(path: Path, *minutes: int) -> Path:
    began = datetime(2026, 1, 1)
    lines = [f"{began + timedelta(minutes=minute)} INFO ready" for minute in minutes]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that replaces the usual folders of log files."""
    monkeypatch.setattr(logs, "_PLACES", (str(tmp_path),))
    return tmp_path


def test_text_logs_are_found_and_nothing_else(machine: Path) -> None:
    (machine / "nested").mkdir()
    wanted = {write_log(machine / "syslog", 1), write_log(machine / "nested" / "app.log", 1, 2)}
    (machine / "wtmp").write_bytes(b"\0\1")
    (machine / "binary.log").write_bytes(b"a\0b")
    (machine / "empty.log").touch()
    (machine / "app.log.gz").write_bytes(b"text")
    assert set(find_logs()) == wanted


def test_found_logs_stay_within_what_the_demo_has_time_for(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, small = write_log(machine / "large.log", *range(50)), write_log(machine / "small.log", 1)
    monkeypatch.setattr(logs, "MAX_FOUND_BYTES", large.stat().st_size - 1)
    assert find_logs() == [small]


def test_a_machine_without_logs_is_told_how_to_go_on(machine: Path) -> None:
    with pytest.raises(NoLogsError, match=r"name some, as in make demo FILES='a.log b.log'"):
        find_logs()


def test_a_named_file_must_be_there_and_be_text(tmp_path: Path) -> None:
    good = write_log(tmp_path / "good.txt", 1)
    (tmp_path / "bad").write_bytes(b"\0")
    assert check_logs([good, good]) == [good]
    with pytest.raises(NoLogsError, match="none: there is no file"):
        check_logs([tmp_path / "none"])
    with pytest.raises(NoLogsError, match="bad: it is empty or no text"):
        check_logs([tmp_path / "bad"])


def test_a_files_name_says_which_topic_it_belongs_to() -> None:
    files = [Path("/l/nginx/access.log"), Path("/l/postgresql-15.log"), Path("/l/orders.log")]
    assert by_topic(files) == {APP: [files[2]], INGRESS: [files[0]], DB: [files[1]]}


def test_no_topic_stays_empty_while_there_are_enough_files() -> None:
    topics = by_topic([Path(f"/l/service{number}.log") for number in range(3)])
    assert [len(files) for files in topics.values()] == [1, 1, 1]


def test_one_file_leaves_the_other_topics_empty() -> None:
    assert by_topic([Path("/l/orders.log")]) == {APP: [Path("/l/orders.log")], INGRESS: [], DB: []}


def test_a_span_goes_from_the_first_timestamp_to_the_last(tmp_path: Path) -> None:
    assert span(write_log(tmp_path / "a.log", 0, 5, 90)) == timedelta(minutes=90)
    (tmp_path / "b.log").write_text("no time at all\n")
    assert span(tmp_path / "b.log") == timedelta(0)


def test_the_window_suits_the_usual_file_and_bounds_the_longest(tmp_path: Path) -> None:
    hour = write_log(tmp_path / "hour.log", 0, 60)
    day = write_log(tmp_path / "day.log", 0, 24 * 60)
    year = write_log(tmp_path / "year.log", 0, 365 * 24 * 60)
    assert choose_window([hour]) == timedelta(minutes=1)
    assert choose_window([hour, day, year]) == timedelta(hours=12)
    assert choose_window([]) == timedelta(seconds=10)


def test_a_window_is_said_as_a_person_says_it() -> None:
    said = [describe(timedelta(seconds=seconds)) for seconds in (10, 60, 1800, 3600, 604_800)]
    assert said == ["10 seconds", "1 minute", "30 minutes", "1 hour", "7 days"]


def test_the_folder_of_a_former_run_is_emptied(tmp_path: Path) -> None:
    folder = prepare(tmp_path / "demo")
    (folder / "records").mkdir()
    assert [path.name for path in prepare(folder).iterdir()] == [".barnabas-demo"]


def test_a_folder_of_somebody_elses_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(FolderError, match="holds files that are not the demo's: choose another"):
        prepare(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"
