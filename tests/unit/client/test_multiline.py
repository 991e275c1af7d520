"""The lines that make one record."""

import pytest

from barnabas.client.multiline import MAX_CHARACTERS, MAX_LINES, LineGrouper


def group(text):
    grouper = LineGrouper()
    records = []
    for number, line in enumerate(text.split("\n"), 1):
        finished = grouper.add(line, number)
        if finished is not None:
            records.append(finished)
    last = grouper.flush()
    return [*records, *([last] if last else [])]


JAVA = """2024-01-01 12:00:00 ERROR app: boom
java.lang.IllegalStateException: no
\tat a.B.c(B.java:1)
\t... 12 more
Caused by: java.io.IOException: disk
\tat d.E.f(E.java:2)"""

PYTHON = """Traceback (most recent call last):
  File "a.py", line 1, in <module>
    f()
ValueError: bad"""

CHAINED = f"""{PYTHON}

During handling of the above exception, another exception occurred:

{PYTHON}"""


def test_lines_with_timestamps_are_records_of_their_own():
    records = group("2024-01-01 12:00:00 a\n2024-01-01 12:00:01 b\n2024-01-01 12:00:02 c")
    assert [(record.text[-1], record.end) for record in records] == [("a", 1), ("b", 2), ("c", 3)]


@pytest.mark.parametrize("trace", [JAVA, PYTHON, CHAINED])
def test_a_stack_trace_is_one_record(trace):
    assert [record.text for record in group(trace)] == [trace]


def test_a_java_trace_is_followed_by_the_next_record():
    records = group(f"{JAVA}\n2024-01-01 12:00:01 INFO app: on we go")
    assert [record.text for record in records] == [JAVA, "2024-01-01 12:00:01 INFO app: on we go"]


def test_plain_lines_after_a_python_trace_are_records_of_their_own():
    assert [record.text for record in group(f"{PYTHON}\nplain\nwords")] == [PYTHON, "plain", "words"]


def test_two_python_traces_in_a_row_are_two_records():
    assert [record.text for record in group(f"{PYTHON}\n{PYTHON}")] == [PYTHON, PYTHON]


def test_a_trace_below_a_logged_line_belongs_to_it():
    text = f"2024-01-01 12:00:00,123 ERROR app: failed\n{PYTHON}"
    assert [record.text for record in group(text)] == [text]


def test_lines_without_any_header_are_records_of_their_own():
    assert [record.text for record in group("one\ntwo\nthree")] == ["one", "two", "three"]


def test_blank_lines_are_covered_by_the_record_before_them():
    records = group("one\n\n\ntwo")
    assert [(record.text, record.end) for record in records] == [("one", 3), ("two", 4)]


def test_json_lines_are_never_put_together():
    assert len(group('{"a":1}\n{"a":2}\n{"a":3}')) == 3


def test_an_endless_record_is_cut_and_nothing_of_it_is_lost():
    lines = ["2024-01-01 12:00:00 head", *(f"  line {n}" for n in range(3 * MAX_LINES))]
    records = group("\n".join(lines))
    assert len(records) == 4
    assert "\n".join(record.text for record in records) == "\n".join(lines)


def test_a_record_stays_below_the_byte_limit():
    records = group("\n".join(["2024-01-01 12:00:00 head", *(" " + "x" * 50_000 for _ in range(9))]))
    assert all(len(record.text) <= MAX_CHARACTERS for record in records)
    assert sum(record.text.count("x") for record in records) == 450_000
