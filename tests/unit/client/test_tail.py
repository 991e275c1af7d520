"""Reads a log that grows, rotates and is truncated, in one or several processes, without loss or repeats."""

import gzip
import os
import re
import shutil
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.effort import examples

from barnabas.client.tail import MAX_LINE, FileTail, Position, is_rotated_name


@pytest.fixture
def log(tmp_path):
    return tmp_path / "app.log"


@pytest.fixture
def follow():
    """Make tails that are closed when the test ends."""
    with ExitStack() as stack:

        def make(*args, **kwargs):
            return stack.enter_context(closing(FileTail(*args, **kwargs)))

        yield make


def append(path, *lines):
    with path.open("ab") as file:
        for line in lines:
            file.write(line.encode() + b"\n")


def read(tail, *, final=False):
    lines = []
    while (line := tail.next_line(final=final)) is not None:
        lines.append(line.decode().rstrip("\n"))
    return lines


def make_room(path, keep):
    """Rename .1 to .2 and so on, compressed or not."""
    for number in range(keep, 0, -1):
        for form in ("", ".gz"):
            older = path.with_name(f"{path.name}.{number}{form}")
            if older.exists():
                older.rename(path.with_name(f"{path.name}.{number + 1}{form}"))


def rotate(path, keep=5):
    make_room(path, keep)
    path.rename(path.with_name(f"{path.name}.1"))


def copy_truncate(path, keep=5):
    make_room(path, keep)
    shutil.copy(path, path.with_name(f"{path.name}.1"))
    os.truncate(path, 0)


def compress(path):
    with gzip.open(path.with_name(path.name + ".gz"), "wb") as file:
        file.write(path.read_bytes())
    path.unlink()


def test_lines_come_as_the_file_grows(log, follow):
    append(log, "one")
    tail = follow(log)
    assert read(tail) == ["one"]
    assert read(tail) == []
    append(log, "two", "three")
    assert read(tail) == ["two", "three"]


def test_a_line_waits_for_its_newline(log, follow):
    log.write_bytes(b"half")
    tail = follow(log)
    assert read(tail) == []
    append(log, " and half")
    assert read(tail) == ["half and half"]


def test_at_the_final_look_a_line_needs_no_newline(log, follow):
    log.write_bytes(b"one\nend")
    assert read(follow(log), final=True) == ["one", "end"]


def test_a_file_that_is_not_there_yet_is_waited_for(log, follow):
    tail = follow(log)
    assert read(tail) == []
    append(log, "one")
    assert read(tail) == ["one"]


def test_a_carriage_return_does_not_end_a_line(log, follow):
    log.write_bytes(b"a\rb\r\nc\n")
    tail = follow(log)
    assert [tail.next_line(), tail.next_line()] == [b"a\rb\r\n", b"c\n"]


def test_an_endless_line_comes_in_pieces(log, follow):
    log.write_bytes(b"x" * (5 * MAX_LINE) + b"\nnext\n")
    tail = follow(log)
    pieces = []
    while (line := tail.next_line()) is not None:
        pieces.append(line)
    assert b"".join(pieces) == log.read_bytes()
    assert pieces[-1] == b"next\n"


def test_a_renamed_file_is_finished_before_the_new_one(log, follow):
    append(log, "one")
    tail = follow(log, grace_polls=0)
    assert read(tail) == ["one"]
    append(log, "two")
    rotate(log)
    append(log, "three")
    assert read(tail) == ["two", "three"]


def test_a_damaged_compressed_file_is_not_the_file_of_a_position(log, follow):
    append(log, "one")
    tail = follow(log)
    assert read(tail) == ["one"]
    append(log, "two")
    rotate(log)
    compress(log.with_name("app.log.1"))
    header = gzip.compress(b"")[:10]
    log.with_name("app.log.2.gz").write_bytes(header + b"\xff" * 20)
    append(log, "three")
    assert read(follow(log, tail.position, grace_polls=0)) == ["two", "three"]


def noise():
    """Return lines that stay longer than the buffer of `gzip` when they are compressed."""
    random = Random(1)
    return [f"{number} {random.randbytes(30).hex()}" for number in range(20_000)]


def _cut_off(data):
    return data[: len(data) // 2]


def _overwritten(data):
    return data[: len(data) // 2] + b"\xff" * (len(data) // 2)


def _with_another_checksum(data):
    return data[:-8] + b"\0\0\0\0" + data[-4:]


def _with_another_file_behind(data):
    return data + b"no gzip"


@pytest.mark.parametrize(
    "damage",
    [_cut_off, _overwritten, _with_another_checksum, _with_another_file_behind],
    ids=lambda d: d.__name__,
)
def test_lines_before_the_damage_of_a_compressed_file_are_read_and_then_the_next_file(log, follow, damage):
    lines = noise()
    append(log, *lines)
    rotate(log)
    compress(log.with_name("app.log.1"))
    damaged = log.with_name("app.log.1.gz")
    damaged.write_bytes(damage(damaged.read_bytes()))
    append(log, "next")
    tail = follow(log, history=(damaged,), grace_polls=0)
    *found, last = read(tail)
    assert last == "next"
    if damage in (_with_another_checksum, _with_another_file_behind):
        assert found == lines
    assert found[:5_000] == lines[:5_000]
    (warning,) = tail.warnings
    assert re.fullmatch(rf"{damaged}: damaged after byte \d{{6,7}} of .*", warning)


def test_reading_continues_after_the_damage_that_an_earlier_process_has_met(log, follow):
    append(log, "one", "two")
    rotate(log)
    compress(log.with_name("app.log.1"))
    damaged = log.with_name("app.log.1.gz")
    damaged.write_bytes(_with_another_checksum(damaged.read_bytes()))
    append(log, "three")
    first = follow(log, history=(damaged,), grace_polls=0)
    assert [first.next_line(), first.next_line()] == [b"one\n", b"two\n"]
    second = follow(log, first.position, grace_polls=0)
    assert read(second) == ["three"]
    assert "app.log.1.gz" in second.warnings[0] and "byte 8" in second.warnings[0]


def test_a_compressed_file_that_is_still_being_written_loses_no_line(log, follow):
    lines = noise()
    append(log, *lines)
    rotate(log)
    rotated = log.with_name("app.log.1")
    data = gzip.compress(rotated.read_bytes())
    rotated.unlink()
    half = log.with_name("app.log.1.gz")
    half.write_bytes(data[: len(data) // 2])
    append(log, "next")
    tail = follow(log, history=(half,), grace_polls=2)
    found = read(tail)
    with half.open("ab") as file:
        file.write(data[len(data) // 2 :])
    while found[-1] != "next":
        found += read(tail)
    assert found == [*lines, "next"] and tail.warnings == []


def test_a_writer_that_has_not_let_go_of_the_renamed_file_is_given_time(log, follow):
    append(log, "one")
    tail = follow(log, grace_polls=2)
    read(tail)
    with log.open("ab") as writer:
        rotate(log)
        append(log, "three")
        assert read(tail) == []
        writer.write(b"two\n")
        writer.flush()
        assert read(tail) == ["two"]
    assert read(tail) == []
    assert read(tail) == ["three"]


def test_several_rotations_between_two_looks(log, follow):
    append(log, "one")
    tail = follow(log, grace_polls=0)
    read(tail)
    for line in ("two", "three", "four"):
        append(log, line)
        rotate(log)
    append(log, "five")
    assert read(tail) == ["two", "three", "four", "five"]


def test_a_copied_and_truncated_file_is_finished_in_its_copy(log, follow):
    append(log, "one")
    tail = follow(log, grace_polls=0)
    read(tail)
    append(log, "two")
    copy_truncate(log)
    append(log, "three")
    assert read(tail) == ["two", "three"]
    assert tail.warnings == []


def test_a_truncated_file_that_has_grown_past_the_position_is_noticed(log, follow):
    append(log, "one")
    tail = follow(log, grace_polls=0)
    read(tail)
    copy_truncate(log)
    append(log, "two, and much longer than before")
    assert read(tail) == ["two, and much longer than before"]


def test_truncation_without_a_copy_is_said_and_the_new_lines_come(log, follow):
    append(log, "one")
    tail = follow(log, grace_polls=0)
    read(tail)
    os.truncate(log, 0)
    append(log, "two")
    assert read(tail) == ["two"]
    assert "truncated after byte 4" in tail.warnings[0]


def test_a_restart_goes_on_behind_the_position(log, follow):
    append(log, "one", "two")
    tail = follow(log)
    tail.next_line()
    again = follow(log, Position.decode(tail.position.encode()))
    assert read(again) == ["two"]


def test_a_restart_after_a_rotation_finishes_the_renamed_file(log, follow):
    append(log, "one", "two")
    tail = follow(log)
    tail.next_line()
    rotate(log)
    append(log, "three")
    rotate(log)
    append(log, "four")
    assert read(follow(log, tail.position, grace_polls=0)) == ["two", "three", "four"]


def test_a_restart_after_rotation_and_compression_reads_the_compressed_file_on(log, follow):
    append(log, "one", "two")
    tail = follow(log)
    tail.next_line()
    rotate(log)
    compress(log.with_name("app.log.1"))
    append(log, "three")
    assert read(follow(log, tail.position, grace_polls=0)) == ["two", "three"]


def test_compression_of_what_was_read_repeats_nothing(log, follow):
    append(log, "one")
    tail = follow(log, grace_polls=0)
    read(tail)
    rotate(log)
    compress(log.with_name("app.log.1"))  # and its time is later than the log's
    append(log, "two")
    assert read(tail) == ["two"]


def test_a_restart_after_copy_and_truncate_finishes_the_copy(log, follow):
    append(log, "one", "two")
    tail = follow(log)
    tail.next_line()
    copy_truncate(log)
    append(log, "three")
    assert read(follow(log, tail.position, grace_polls=0)) == ["two", "three"]


def test_a_restart_when_the_file_is_gone_says_so_and_reads_what_came_after(log, follow):
    append(log, "one", "two")
    tail = follow(log)
    tail.next_line()
    log.unlink()
    append(log, "three")
    again = follow(log, tail.position, since_ns=0, grace_polls=0)
    assert read(again) == ["three"]
    assert "is gone" in again.warnings[0]


def test_a_log_that_was_empty_when_it_rotated_is_found_by_its_inode(log, follow):
    log.touch()
    tail = follow(log)
    read(tail)
    append(log, "one")
    rotate(log)
    append(log, "two")
    assert read(follow(log, tail.position, grace_polls=0)) == ["one", "two"]


def test_lines_that_end_alike_do_not_confuse_a_file_with_an_older_one(log, follow):
    lines = [f"{number} {'y' * 300}" for number in range(9)]
    log.touch()
    tail = follow(log, grace_polls=0)
    for start in (0, 3, 6):
        append(log, *lines[start : start + 3])
        rotate(log)
        if start == 3:
            compress(log.with_name("app.log.1"))  # while it is open, so that its inode is gone
    append(log, "end")
    assert read(tail) == [*lines, "end"]


def test_an_empty_file_that_is_gone_is_known_by_the_one_before_it(log, follow):
    append(log, "one")
    tail = follow(log, grace_polls=0)
    rotate(log)
    log.touch()
    assert read(tail) == ["one"]
    compress(log.with_name("app.log.1"))
    rotate(log)
    compress(log.with_name("app.log.1"))
    append(log, "two")
    assert read(tail) == ["two"]


def test_given_history_is_read_first_and_older_files_are_not(log, follow):
    for line in ("one", "two", "three"):
        append(log, line)
        rotate(log)
    append(log, "four")
    assert read(follow(log, history=(log.with_name("app.log.2"),), grace_polls=0)) == [
        "two",
        "three",
        "four",
    ]


def test_dated_rotations_are_read_in_the_order_of_their_dates(log, follow):
    append(log, "one", "two")
    tail = follow(log)
    tail.next_line()
    log.rename(log.with_name("app.log-20240101"))
    append(log, "three")
    log.rename(log.with_name("app.log-20240102"))
    append(log, "four")
    assert read(follow(log, tail.position, grace_polls=0)) == ["two", "three", "four"]


@pytest.mark.parametrize(
    ("name", "rotated"),
    [
        ("app.log.1", True),
        ("app.log.12.gz", True),
        ("app.log-20240131", True),
        ("app.log.2024-01-31_10", True),
        ("app.log.old", True),
        ("app.log", False),
        ("app.log.txt", False),
        ("app.logger", False),
        ("other.log.1", False),
    ],
)
def test_rotated_names(name, rotated):
    assert is_rotated_name(Path("/d") / name, Path("/d/app.log")) is rotated


def test_a_position_that_is_not_one_is_refused():
    with pytest.raises(ValueError, match="unpack"):
        Position.decode("nonsense")


class TailMachine(RuleBasedStateMachine):
    """Random writes, rotations, reads and restarts: the lines read are the lines written.

    After a restart, the reader continues after the last line read, as a shipper does.
    """

    @initialize()
    def begin(self):
        self.directory = Path(tempfile.mkdtemp())
        self.path = self.directory / "app.log"
        self.path.touch()
        self.written = []
        self.read = []
        self.tail = FileTail(self.path, grace_polls=0)
        self.position = self.tail.position

    @rule(count=st.integers(1, 5), size=st.integers(0, 400))
    def write(self, count, size):
        lines = [f"{len(self.written) + n} {'y' * size}" for n in range(count)]
        append(self.path, *lines)
        self.written += lines

    @rule()
    def rename(self):
        rotate(self.path, keep=50)
        self.path.touch()

    @rule()
    def truncate(self):
        if self.tail.position.offset == 0:
            self.look(1000)  # of a file it has read nothing of, a tail cannot know its copy
        if self.path.stat().st_size and self.tail.position.offset:
            copy_truncate(self.path, keep=50)

    @rule()
    def squeeze(self):
        newest = self.path.with_name("app.log.1")
        if newest.exists() and self.read and newest.stat().st_size:
            compress(newest)

    @rule(count=st.integers(1, 4))
    def look(self, count):
        for _ in range(count):
            line = self.tail.next_line()
            if line is not None:
                self.read.append(line.decode().rstrip("\n"))
                self.position = self.tail.position

    @rule()
    def look_until_quiet(self):
        self.look(len(self.written) + 100)
        assert self.read == self.written

    @rule()
    def restart(self):
        self.tail.close()
        self.tail = FileTail(self.path, self.position, grace_polls=0)

    def teardown(self):
        if hasattr(self, "tail"):
            try:
                self.look_until_quiet()
            finally:
                self.tail.close()
                shutil.rmtree(self.directory)


TestTailMachine = TailMachine.TestCase
TestTailMachine.settings = settings(max_examples=examples(60, 1000), stateful_step_count=25, deadline=None)
