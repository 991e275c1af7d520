"""A pipeline's metrics: a status in Prometheus' format, and the page with it."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.metrics import METRICS, MetricsServer, exposition
from barnabas.pipelines.status import PartitionLag, PipelineStatus, QueryStatus

AT = "2026-03-01T00:00:00+00:00"


def status(state: str = "running") -> PipelineStatus:
    query = QueryStatus("out", state, rows_read=7, rows_written=5, batch=3, batch_ms=1500, restarts=2, lag=6)
    query.rows_rejected = 1
    query.partitions = [PartitionLag("t", 0, 5, 9, 4), PartitionLag("t", 1, 7, 9, 2)]
    query.watermark = "2026-03-01T00:00:10.000Z"
    return PipelineStatus("shop", "shop.py", "local[1]", 1, "running", AT, AT, [query], alerts=["late"])


def test_every_number_of_a_status_is_a_sample() -> None:
    text = "".join(exposition(status()))
    query = 'pipeline="shop",query="out"'
    for line in (
        f"barnabas_pipeline_rows_read_total{{{query}}} 7.0",
        f"barnabas_pipeline_rows_written_total{{{query}}} 5.0",
        f"barnabas_pipeline_rows_rejected_total{{{query}}} 1.0",
        f"barnabas_pipeline_restarts_total{{{query}}} 2.0",
        f"barnabas_pipeline_batch_seconds{{{query}}} 1.5",
        f"barnabas_pipeline_lag{{{query}}} 6.0",
        f"barnabas_pipeline_max_offsets_behind_latest{{{query}}} 4.0",
        f"barnabas_pipeline_avg_offsets_behind_latest{{{query}}} 3.0",
        f"barnabas_pipeline_min_offsets_behind_latest{{{query}}} 2.0",
        f"barnabas_pipeline_watermark_seconds{{{query}}} 1772323210.0",
        f'barnabas_pipeline_query_state{{{query},state="running"}} 1.0',
        f'barnabas_pipeline_query_state{{{query},state="failed"}} 0.0',
        f'barnabas_pipeline_partition_lag{{{query},topic="t",partition="1"}} 2.0',
        'barnabas_pipeline_alerts{pipeline="shop"} 1.0',
        'barnabas_pipeline_updated_seconds{pipeline="shop"} 1772323200.0',
    ):
        assert f"{line}\n" in text, line
    assert "state_rows" not in text  # the query keeps no state
    assert len({metric.name for metric in METRICS}) == len(METRICS)


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    server = MetricsServer("127.0.0.1:0")
    yield server
    server.close()


def get(server: MetricsServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(server.url + path, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_metrics_and_health_are_served(server: MetricsServer) -> None:
    assert get(server, "/healthz")[0] == 503  # nothing is known yet
    server.show(status())
    assert get(server, "/metrics") == (200, "".join(exposition(status())))
    assert get(server, "/healthz") == (200, "ok\n")
    server.show(status("failed"))
    assert get(server, "/healthz")[0] == 503


def test_an_address_that_cannot_be_had_is_named(server: MetricsServer) -> None:
    taken = server.url.removeprefix("http://")
    with pytest.raises(PipelineError, match=f"--metrics={taken} cannot be used: "):
        MetricsServer(taken)
    with pytest.raises(PipelineError, match="--metrics=here: write HOST:PORT"):
        MetricsServer("here")
