"""The console's page of pipelines, from their status topic."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from barnabas.client import Admin, Producer
from barnabas.console.pages.pipelines import STATUS_TOPIC
from barnabas.testing import BarnabasBroker


@pytest.fixture
def broker():
    """Start a broker for this test, because the topic has a fixed name."""
    with BarnabasBroker() as broker:
        yield broker


def status(**fields):
    query = {
        "query": "orders",
        "state": "running",
        "rows_read": 7,
        "rows_written": 6,
        "rows_rejected": 2,
        "processed_rows_per_second": 2.5,
        "batch_ms": 120,
        "lag": 3,
        "restarts": 1,
        "last_error": "row 7 is odd",
        "last_error_at": "2026-01-01T00:00:00+00:00",
    }
    now = datetime.now(UTC).isoformat()
    return {
        "version": 1,
        "state": "running",
        "host": "h",
        "updated": now,
        "every_s": 3600,
        "queries": [query],
        **fields,
    }


def write(broker, **by_name):
    with Producer(broker.bootstrap_servers) as producer:
        for name, value in by_name.items():
            producer.send(STATUS_TOPIC, value, key=name)


def test_without_a_status_topic_the_page_says_so(start_console, broker):
    told = start_console(broker.bootstrap_servers).get("pipelines")
    assert told["pipelines"] == [] and STATUS_TOPIC in told["problem"]
    assert STATUS_TOPIC not in Admin(broker.bootstrap_servers).topics()  # asking has not made it


def test_the_newest_word_of_each_pipeline_is_shown(start_console, broker):
    broker.create_topic(STATUS_TOPIC)
    console = start_console(broker.bootstrap_servers)
    old = "2001-01-01T00:00:00+00:00"
    write(
        broker,
        shop=status(state="failed"),
        gone=status(),
        quiet=status(updated=old),
        ended=status(updated=old, state="stopped"),
    )
    assert [p["state"] for p in console.get("pipelines")["pipelines"]] == [
        "stopped",
        "running",
        "silent",
        "failed",
    ]
    write(broker, shop=status(), gone=None)
    told = console.get("pipelines")
    assert [(p["name"], p["state"]) for p in told["pipelines"]] == [
        ("ended", "stopped"),
        ("quiet", "silent"),
        ("shop", "running"),
    ]
    (query,) = told["pipelines"][2]["queries"]
    assert (query["lag"], query["rows_a_second"], query["error"]) == (3, 2.5, "row 7 is odd")
    assert (query["rows_written"], query["rows_rejected"]) == (6, 2)
    assert (told["left"], told["problem"]) == (0, None)


def test_nonsense_in_the_status_topic_harms_nobody(start_console, broker):
    broker.create_topic(STATUS_TOPIC)
    odd = {
        "state": 7,
        "queries": [1, {"query": ["x"], "lag": "many", "rows_read": True}],
        "alerts": {},
        "every_s": -1,
    }
    write(broker, a=b"\xff", b="[]", c=json.dumps(odd), d=status(updated="soon", alerts=["late", 3]), e="<b>")
    rows = {p["name"]: p for p in start_console(broker.bootstrap_servers).get("pipelines")["pipelines"]}
    assert [*rows] == ["c", "d"]
    assert rows["c"]["state"] == "" and rows["c"]["queries"][0]["lag"] is None
    assert (rows["d"]["state"], rows["d"]["alerts"]) == ("silent", ["late", ""])


def test_errors_are_hidden_where_values_are(start_console, broker):
    from barnabas.console.view import Privacy

    broker.create_topic(STATUS_TOPIC)
    write(broker, shop=status())
    told = start_console(broker.bootstrap_servers, privacy=Privacy(hide_values=True)).get("pipelines")
    assert told["pipelines"][0]["queries"][0]["error"] == "hidden"
