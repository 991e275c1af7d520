"""An alert begins when a query has lagged too much for too long, and ends when it has caught up."""

from __future__ import annotations

from barnabas.pipelines.alerts import LagAlert
from barnabas.pipelines.status import QueryStatus


class Watch:
    """A `LagAlert` of 100 records for 60 seconds, with a clock that the test sets."""

    def __init__(self, max_lag: int = 100) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self._alert = LagAlert(max_lag, 60, lambda: self.now, self.said.append)

    def look(self, at: float, **lags: int | None) -> list[str]:
        self.now = at
        return self._alert.look([QueryStatus(name, "running", lag=lag) for name, lag in lags.items()])


def test_an_alert_begins_after_its_time_and_is_said_once() -> None:
    watch = Watch()
    assert watch.look(0, out=101, other=100) == []
    assert watch.look(59, out=5000) == []
    words = "out is 5,001 records behind, more than alert_lag=100"
    assert watch.look(60, out=5001) == [words]
    assert watch.look(61, out=5002, other=None) == ["out is 5,002 records behind, more than alert_lag=100"]
    assert watch.said == [f"alert: {words}"]


def test_an_alert_ends_when_the_query_has_caught_up_and_begins_anew() -> None:
    watch = Watch()
    watch.look(0, out=101)
    assert watch.look(60, out=101) != []
    assert watch.look(70, out=7) == []
    assert watch.said[-1] == "out has caught up: it is 7 records behind"
    assert watch.look(71, out=101) == []  # its time begins again
    assert watch.look(131, out=101) != []
    assert len(watch.said) == 3


def test_a_short_excursion_is_none() -> None:
    watch = Watch()
    for at, lag in ((0, 500), (30, 50), (50, 500), (100, 500), (109, 500)):
        assert watch.look(at, out=lag) == []
    assert watch.said == []


def test_without_a_limit_nothing_is_an_alert() -> None:
    watch = Watch(max_lag=0)
    watch.look(0, out=10**9)
    assert watch.look(10**6, out=10**9) == []
