"""Tables, counters and times as commands print and read them."""

import io

import click
import pytest

from barnabas.base.types import TopicPartition
from barnabas.cli.offset_targets import Target, parse_duration, parse_time
from barnabas.cli.options import parse_assignments
from barnabas.cli.output import print_table, snake_case
from barnabas.cli.progress import Counter, human_bytes, is_file

NOTHING = {
    "to_earliest": False,
    "to_latest": False,
    "to_offset": None,
    "shift_by": None,
    "to_datetime": None,
    "by_duration": None,
}
P0 = TopicPartition("t", 0)


class FakeAdmin:
    """A partition with the offsets 10 to 20, whose record of time 1000 has offset 15."""

    def offsets(self, partitions, spec):
        found = {"earliest": 10, "latest": 20}.get(spec, 15 if spec == 1000 else -1)
        return dict.fromkeys(partitions, found)


def target(**chosen):
    return Target.from_options(**{**NOTHING, **chosen})


@pytest.mark.parametrize(
    ("chosen", "offset"),
    [
        (target(to_earliest=True), 10),
        (target(to_latest=True), 20),
        (target(to_offset=12), 12),
        (target(to_offset=3), 10),
        (target(to_offset=33), 20),
        (target(shift_by=-3), 13),
        (target(shift_by=30), 20),
        (Target("time", 1000), 15),
        (Target("time", 9999), 20),
    ],
)
def test_targets_stay_between_the_first_record_and_the_end(chosen, offset):
    assert chosen.offsets(FakeAdmin(), [P0], {P0: 16}) == {P0: offset}


def test_exactly_one_target_must_be_given():
    with pytest.raises(click.UsageError):
        target()
    with pytest.raises(click.UsageError):
        target(to_latest=True, to_offset=1)


@pytest.mark.parametrize(
    ("text", "ms"), [("500ms", 500), ("90s", 90_000), ("2h", 7_200_000), ("1d", 86_400_000)]
)
def test_durations_have_units(text, ms):
    assert parse_duration(text, "--x") == ms


@pytest.mark.parametrize("text", ["", "10", "m", "-1s", "1.5h", "1y", "9" * 16 + "d"])
def test_durations_without_sense_are_wrong_usage(text):
    with pytest.raises(click.UsageError, match="--x"):
        parse_duration(text, "--x")


def test_times_may_name_a_zone():
    assert parse_time("1970-01-01T01:00:00+01:00", "--x") == 0
    assert parse_time("1900-01-01", "--x") == 0
    with pytest.raises(click.UsageError, match="--x yesterday"):
        parse_time("yesterday", "--x")


def test_tables_line_up(capsys):
    print_table(["NAME", "N"], [("a", 1), ("long", 100), (None, None)])
    assert capsys.readouterr().out == "NAME    N\na       1\nlong  100\n-       -\n"


def test_a_cell_takes_one_line_and_is_never_cut(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    print_table(["NAME", "VALUE"], [("a\nb\x1b[31m", "x" * 500)])
    assert capsys.readouterr().out.splitlines()[1] == "a\\nb\\x1b[31m  " + "x" * 500


def test_json_has_one_style_of_keys():
    kafkas = {"baseOffset": 1, "isvalid": True, "records": [{"deleteHorizonMs": None}], "leader_epoch": 2}
    assert snake_case(kafkas) == {
        "base_offset": 1,
        "is_valid": True,
        "records": [{"delete_horizon_ms": None}],
        "leader_epoch": 2,
    }


def test_an_empty_table_has_its_headings(capsys):
    print_table(["NAME", "N"], [])
    assert capsys.readouterr().out == "NAME  N\n"


def test_a_counter_is_silent_in_a_pipe_and_ends_its_line_on_a_terminal(capsys):
    with Counter("sent", shown=False) as counter:
        counter.add(1, 10)
    assert capsys.readouterr().err == ""
    with Counter("sent", shown=True, total_bytes=40) as counter:
        counter.add(1_000, 10)
    err = capsys.readouterr().err
    assert err.endswith("\n")
    assert "sent 1,000 records  10 B  25%" in err


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1_234_567, "1.2 MB"), (5e12, "5.0 TB")]
)
def test_sizes_are_short(size, text):
    assert human_bytes(size) == text


def test_only_files_are_files(tmp_path):
    with (tmp_path / "f").open("w") as file:
        assert is_file(file)
    assert not is_file(io.BytesIO())


@pytest.mark.parametrize("item", ["x", "=1", " =1"])
def test_assignments_need_a_name_and_a_value(item):
    with pytest.raises(click.UsageError, match="write NAME=VALUE"):
        parse_assignments([item], "--set")
    assert parse_assignments(["a = b=c"], "--set") == {"a": "b=c"}
