"""Log lines: JSON, and lines that repeat."""

import io
import json
import logging

import pytest

from barnabas.cli.logging_output import WINDOW, CountingHandler, JsonFormatter


@pytest.fixture
def stream():
    return io.StringIO()


@pytest.fixture
def handler(stream):
    made = CountingHandler()
    made.setStream(stream)
    yield made
    made.close()


def log(handler, message, at=0.0, *args, level=logging.WARNING, error=None):
    info = (type(error), error, None) if error is not None else None
    record = logging.LogRecord("barnabas.test", level, "file.py", 1, message, args, info)
    record.created = at
    handler.handle(record)


def test_a_line_that_repeats_is_counted_and_told_with_the_next_line_after_a_while(handler, stream):
    for at in range(5):
        log(handler, "the disk is full", at)
    log(handler, "something else", 5)
    assert stream.getvalue().splitlines() == ["the disk is full", "something else"]
    log(handler, "later", WINDOW + 1)
    assert stream.getvalue().splitlines()[2:] == [
        f"the disk is full (4 more like it within {WINDOW:g} s)",
        "later",
    ]


def test_a_line_is_written_again_after_a_while(handler, stream):
    log(handler, "hello", 0)
    log(handler, "hello", WINDOW + 1)
    assert stream.getvalue().splitlines() == ["hello", "hello"]


def test_what_was_counted_is_told_at_the_end(handler, stream):
    log(handler, "hello", 0)
    log(handler, "hello", 1)
    handler.close()
    assert "1 more like it" in stream.getvalue()


def test_lines_that_differ_are_all_written(handler, stream):
    for number in range(2000):
        log(handler, "offset %d", 0, number)
    assert len(stream.getvalue().splitlines()) == 2000
    assert len(handler._known) <= 1000


def test_a_clock_that_was_set_back_silences_nothing(handler, stream):
    log(handler, "hello", 1000)
    log(handler, "hello", 10)
    assert stream.getvalue().splitlines() == ["hello", "hello"]


def test_a_line_as_json(handler, stream):
    handler.setFormatter(JsonFormatter())
    log(handler, 'a "quoted" %s', 1.5, "name\n", error=ValueError("no"))
    told = json.loads(stream.getvalue())
    assert told == {
        "time": "1970-01-01T00:00:01.500+00:00",
        "level": "WARNING",
        "logger": "barnabas.test",
        "message": 'a "quoted" name\n',
        "exception": "ValueError: no",
    }
