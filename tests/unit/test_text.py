"""What came from outside, in lines of the log."""

import re
from pathlib import Path

import pytest

import barnabas
from barnabas.text import MAX_LINE, MAX_SHOWN, logger_of, shown


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


def test_a_logger_is_made_once():
    assert logger_of("barnabas.of-a-test").filters == logger_of("barnabas.of-a-test").filters


@pytest.mark.parametrize("package", ["server", "coordinator", "controller", "replication", "metadata"])
def test_what_logs_names_of_clients_has_such_a_logger(package):
    for path in (Path(barnabas.__file__).parent / package).rglob("*.py"):
        assert not re.search(r"logging\.getLogger|logging\.(info|warning|error)\(", path.read_text()), path
