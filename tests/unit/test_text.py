"""External text in lines of the log."""

import logging
import re
from pathlib import Path

import pytest

import barnabas
from barnabas.base.text import BURST, FEW, MAX_LINE, MAX_SHOWN, PER_SECOND, FewLines, logger_of, shown


def test_plain_text_stays_as_it_is():
    assert shown("group-1.ä") == "group-1.ä"


@pytest.mark.parametrize(
    "text", ["a\nERROR forged", "\r", "\x1b[31mred", "a\u2028b", "\u202ereversed", "\x00", "\x85", "\ud800"]
)
def test_what_cannot_be_printed_is_escaped(text):
    assert shown(text).isprintable()
    assert "\\" in shown(text)


def test_long_text_is_cut():
    assert len(shown("n" * 32_000)) < MAX_SHOWN + 30
    assert "32000 characters" in shown("n" * 32_000)
    assert len(shown("\n" * 250)) < MAX_SHOWN + 30


def test_a_logger_writes_one_line_whatever_it_is_told(caplog):
    log = logger_of("barnabas.of-a-test")
    log.warning("group %s: member %r of %d left: %s", "g\nforged", "m\x1b[0m", 3, ValueError("n" * 5000))
    log.warning("a message with \n in it")
    first, second = caplog.messages
    assert first.startswith("group g\\nforged: member 'm\\\\x1b[0m' of 3 left: nnn")
    assert all(m.isprintable() and len(m) < MAX_LINE + 30 for m in (first, second))


@pytest.fixture
def clock(monkeypatch):
    """Replace the clock of log lines by one that the test sets, in seconds."""
    times = [1000.0]
    monkeypatch.setattr("time.time", lambda: times[0])  # as logging takes it until Python 3.12
    monkeypatch.setattr("time.time_ns", lambda: int(times[0] * 1e9))
    return times


def test_lines_that_clients_cause_are_limited_and_what_is_left_out_is_said(caplog, clock):
    log = logger_of("barnabas.of-a-test.often", is_limited=True)
    caplog.set_level("INFO")
    for number in range(5000):
        log.info("group %s: rebalancing (%s)", number, "j" * 500)
    assert len(caplog.messages) == BURST + 1
    assert caplog.messages[-1].endswith(f"(at most {PER_SECOND} lines a second like it follow)")
    log.info("another kind of line")
    log.error("group %s: rebalancing (%s)", "broken", "always told")
    assert caplog.messages[-2:] == ["another kind of line", "group broken: rebalancing (always told)"]
    caplog.clear()
    clock[0] += 1
    for number in range(5000):
        log.info("group %s: rebalancing (%s)", number, "again")
    assert len(caplog.messages) == PER_SECOND + 1
    left_out = 5000 - BURST - 1
    assert caplog.messages[0] == f"group 0: rebalancing (again) ({left_out} more like it were left out)"
    caplog.clear()
    clock[0] += BURST / PER_SECOND
    for number in range(BURST):
        log.info("group %s: rebalancing (%s)", number, "later")
    assert len(caplog.messages) == BURST
    clock[0] -= 3600  # the wall clock is set back
    log.info("group %s: rebalancing (%s)", 1, "earlier")
    assert len(caplog.messages) == BURST + 1


def test_a_logger_is_made_once():
    assert logger_of("barnabas.of-a-test").filters == logger_of("barnabas.of-a-test").filters


@pytest.mark.parametrize("package", ["server", "coordinator", "controller", "replication", "metadata"])
def test_what_logs_names_of_clients_has_such_a_logger(package):
    for path in (Path(barnabas.__file__).parent / "broker" / package).rglob("*.py"):
        assert not re.search(r"logging\.getLogger|logging\.(info|warning|error)\(", path.read_text()), path


def test_of_many_lines_the_first_are_shown_and_the_others_are_counted_and_named_at_level_debug(caplog):
    caplog.set_level(logging.DEBUG)
    lines = FewLines(logger_of("few"))
    for _ in range(2):
        for number in range(FEW + 3):
            lines.log("t-%d cannot be opened", number)
        lines.log("%s is damaged", "u-0")
        lines.end("logs cannot be opened")
    lines.end("logs cannot be opened")
    shown_, hidden = (
        [record.getMessage() for record in caplog.records if record.levelno == level]
        for level in (logging.ERROR, logging.DEBUG)
    )
    first = [f"t-{number} cannot be opened" for number in range(FEW)]
    rest = "3 more logs cannot be opened: a start with --log-level debug names them"
    assert shown_ == 2 * [*first, "u-0 is damaged", rest]
    assert hidden == 2 * [f"t-{number} cannot be opened" for number in range(FEW, FEW + 3)]
