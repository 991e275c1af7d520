"""A query that hangs in one batch does not count as healthy."""

from __future__ import annotations

from barnabas.pipelines.alerts import StuckAlert, words_of
from barnabas.pipelines.status import QueryStatus


def test_an_alert_begins_when_a_batch_takes_too_long_and_ends_with_it() -> None:
    said: list[str] = []
    alert = StuckAlert(600, said.append)

    def look(busy_s: int | None, batch: int | None = 6) -> list[str]:
        return alert.look(
            [QueryStatus("out", "running", batch=batch, busy_s=busy_s), QueryStatus("b", "done")]
        )

    assert look(599) == []
    assert look(600) == ["out has been at batch 7 for 10 min"]
    assert look(90_000) == ["out has been at batch 7 for 25 h"]
    assert look(None, batch=7) == []
    assert said == ["alert: out has been at batch 7 for 10 min", "out has gone on"]
    assert look(700, batch=None) == ["out has been at batch 0 for 11 min"]


def test_without_a_time_there_is_no_alert() -> None:
    assert StuckAlert(0, print).look([QueryStatus("out", "running", busy_s=10**6)]) == []


def test_a_duration_is_told_in_its_largest_unit() -> None:
    assert [words_of(each) for each in (0, 59, 60, 3599, 3600)] == ["0 s", "59 s", "1 min", "59 min", "1 h"]
