"""Grafana dashboards of Barnabas' metrics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.base.types import JsonObject

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
#: width and height of a panel in units of Grafana's grid, and the panels in a row
_WIDTH, _HEIGHT, _IN_A_ROW = 8, 8, 3


class Panel(NamedTuple):
    """A graph: its title, its unit in Grafana's terms, and its lines as (PromQL, legend)."""

    title: str
    unit: str
    lines: Sequence[tuple[str, str]]


class Dashboard(NamedTuple):
    """A Grafana dashboard: a page of panels."""

    name: str
    title: str
    panels: Sequence[Panel]
    #: a variable that filters the page: its name, and the query for its values
    variable: tuple[str, str]

    @property
    def text(self) -> str:
        """The dashboard as JSON text, which Grafana can import."""
        return json.dumps(_dashboard(self), indent=2) + "\n"


_I = 'instance=~"$instance"'
_T = 'topic=~"$topic"'

DASHBOARDS = (
    Dashboard(
        "barnabas-brokers",
        "Barnabas: brokers",
        (
            Panel("Partitions without a leader", "none", [("sum(kafka_controller_kafkacontroller_offlinepartitionscount)", "offline")]),
            Panel("Out of sync", "none", [
                (f"kafka_server_replicamanager_underreplicatedpartitions{{{_I}}}", "{{instance}} under-replicated"),
                (f"kafka_server_replicamanager_underminisrpartitioncount{{{_I}}}", "{{instance}} under min ISR"),
            ]),
            Panel("Controller", "none", [("kafka_controller_kafkacontroller_activecontrollercount == 1", "{{instance}}")]),
            Panel("Bytes in", "Bps", [(f'rate(kafka_server_brokertopicmetrics_bytesin_total{{{_I},topic=""}}[5m])', "{{instance}}")]),
            Panel("Bytes out", "Bps", [(f'rate(kafka_server_brokertopicmetrics_bytesout_total{{{_I},topic=""}}[5m])', "{{instance}}")]),
            Panel("Records in", "wps", [(f'rate(kafka_server_brokertopicmetrics_messagesin_total{{{_I},topic=""}}[5m])', "{{instance}}")]),
            Panel("Requests", "reqps", [(f"sum by (request) (rate(kafka_network_requestmetrics_requests_total{{{_I}}}[5m]))", "{{request}}")]),
            Panel("Produce: 99 of 100 take at most", "s", [(f'histogram_quantile(0.99, sum by (le, instance) (rate(barnabas_request_seconds_bucket{{{_I},request="Produce"}}[5m])))', "{{instance}}")]),
            Panel("Fsyncs: 99 of 100 take at most", "s", [(f"histogram_quantile(0.99, sum by (le, instance) (rate(barnabas_fsync_seconds_bucket{{{_I}}}[5m])))", "{{instance}}")]),
            Panel("Processor, cores", "none", [(f"rate(process_cpu_seconds_total{{{_I}}}[5m])", "{{instance}}")]),
            Panel("Memory", "bytes", [(f"process_resident_memory_bytes{{{_I}}}", "{{instance}}")]),
            Panel("Part of the time that the loop stands still", "percentunit", [(f"rate(barnabas_loop_stalled_seconds_total{{{_I}}}[5m])", "{{instance}}")]),
            Panel("Free disk", "bytes", [(f"barnabas_log_directory_free_bytes{{{_I}}}", "{{instance}} {{logdirectory}}")]),
            Panel("Connections", "none", [(f"kafka_server_socket_server_metrics_connection_count{{{_I}}}", "{{instance}} {{listener}}")]),
            Panel("Open files", "none", [(f"process_open_fds{{{_I}}}", "{{instance}}")]),
            Panel("Followers behind", "s", [(f"barnabas_replica_lag_seconds{{{_I}}}", "{{follower}} of {{instance}}")]),
            Panel("ISR changes", "none", [
                (f"rate(kafka_server_replicamanager_isrshrinks_total{{{_I}}}[5m])", "{{instance}} shrinks"),
                (f"rate(kafka_server_replicamanager_isrexpands_total{{{_I}}}[5m])", "{{instance}} expands"),
            ]),
            Panel("Session with the metadata store", "none", [(f"barnabas_metadata_session_state{{{_I}}} == 1", "{{instance}} {{state}}")]),
        ),
        ("instance", "label_values(kafka_server_replicamanager_leadercount, instance)"),
    ),
    Dashboard(
        "barnabas-topics",
        "Barnabas: topics and groups",
        (
            Panel("Records in", "wps", [(f"sum by (topic) (rate(kafka_server_brokertopicmetrics_messagesin_total{{{_T}}}[5m]))", "{{topic}}")]),
            Panel("Bytes in", "Bps", [(f"sum by (topic) (rate(kafka_server_brokertopicmetrics_bytesin_total{{{_T}}}[5m]))", "{{topic}}")]),
            Panel("Bytes out", "Bps", [(f"sum by (topic) (rate(kafka_server_brokertopicmetrics_bytesout_total{{{_T}}}[5m]))", "{{topic}}")]),
            Panel("Lag in records", "none", [(f"sum by (consumergroup, topic) (kafka_consumergroup_lag_sum{{{_T}}})", "{{consumergroup}} in {{topic}}")]),
            Panel("Lag in time", "s", [(f"max by (group, topic) (kafka_consumergroup_group_lag_seconds{{{_T}}})", "{{group}} in {{topic}}")]),
            Panel("Size", "bytes", [(f"sum by (topic) (kafka_log_log_size{{{_T}}})", "{{topic}}")]),
            Panel("Refused", "reqps", [
                (f"sum by (topic) (rate(kafka_server_brokertopicmetrics_failedproducerequests_total{{{_T}}}[5m]))", "{{topic}} produce"),
                (f"sum by (topic) (rate(kafka_server_brokertopicmetrics_failedfetchrequests_total{{{_T}}}[5m]))", "{{topic}} fetch"),
            ]),
            Panel("Replicas in sync", "none", [(f"sum by (topic) (kafka_topic_partition_in_sync_replica{{{_T}}})", "{{topic}}")]),
            Panel("Records after the last stable offset", "none", [(f"sum by (topic) (kafka_cluster_partition_laststableoffsetlag{{{_T}}})", "{{topic}}")]),
        ),
        ("topic", "label_values(kafka_topic_partitions, topic)"),
    ),
)  # fmt: skip


def _dashboard(dashboard: Dashboard) -> JsonObject:
    name, values = dashboard.variable
    return {
        "title": dashboard.title,
        "uid": dashboard.name,
        "tags": ["barnabas"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
                {
                    "name": name,
                    "type": "query",
                    "datasource": _SOURCE,
                    "query": values,
                    "definition": values,
                    "includeAll": True,
                    "allValue": ".+",
                    "multi": True,
                    "refresh": 2,
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "panels": [_panel(number, panel) for number, panel in enumerate(dashboard.panels)],
    }


def _panel(number: int, panel: Panel) -> JsonObject:
    row, column = divmod(number, _IN_A_ROW)
    return {
        "id": number + 1,
        "title": panel.title,
        "type": "timeseries",
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": expression,
                "legendFormat": legend,
            }
            for index, (expression, legend) in enumerate(panel.lines)
        ],
    }
