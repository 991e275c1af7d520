"""Alert rules and dashboards: their metrics exist, and alerts fire when they should."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from barnabas.base.metrics.declaration import Kind
from barnabas.broker.metrics.alerts import ALERTS, RUNBOOK, rules
from barnabas.broker.metrics.catalogue import METRICS
from barnabas.broker.metrics.dashboards import DASHBOARDS

REPOSITORY = Path(__file__).parents[4]
#: Debian has it in the package prometheus
PROMTOOL = os.environ.get("PROMTOOL") or shutil.which("promtool")

_SUFFIXES = {Kind.HISTOGRAM: ("_bucket", "_sum", "_count"), Kind.SUMMARY: ("", "_sum", "_count")}
KNOWN = {
    f"{metric.name}{suffix}": metric
    for metric in METRICS.values()
    for suffix in _SUFFIXES.get(metric.kind, ("",))
}
#: of Prometheus itself
KNOWN_ELSEWHERE = {"up": {"job", "instance"}}
#: labels that Prometheus adds
ADDED = {"instance", "job", "le"}

_SELECTOR = re.compile(r"\b((?:kafka|barnabas|process)_\w+|up)(?:\{([^}]*)\})?")


def expressions():
    for alert in ALERTS:
        yield pytest.param(alert.expression, id=alert.name)
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            for number, (expression, _) in enumerate(panel.lines):
                yield pytest.param(expression, id=f"{dashboard.name} {panel.title} {number}")


@pytest.mark.parametrize("expression", list(expressions()))
def test_an_expression_asks_for_metrics_and_labels_that_exist(expression):
    selectors = _SELECTOR.findall(expression)
    assert selectors
    grouped = re.findall(r"\bby \(([^)]*)\)", expression)
    for name, matchers in selectors:
        assert name in KNOWN or name in KNOWN_ELSEWHERE, name
        labels = set(KNOWN[name].labels) if name in KNOWN else KNOWN_ELSEWHERE[name]
        asked = set(re.findall(r"(\w+)(?:=~|!=|!~|=)", matchers))
        asked |= {label.strip() for group in grouped for label in group.split(",")}
        assert asked <= labels | ADDED, name
    assert expression.count("(") == expression.count(")")
    assert expression.count("{") == expression.count("}")


@pytest.mark.parametrize("expression", list(expressions()))
def test_counters_are_asked_for_their_rate(expression):
    for name, _ in _SELECTOR.findall(expression):
        if name in KNOWN and KNOWN[name].kind is Kind.COUNTER:
            assert re.search(rf"(?:rate|increase)\({name}", expression), name


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)
def test_a_dashboard_is_what_grafana_imports(dashboard):
    made = json.loads(dashboard.text)
    ids = [panel["id"] for panel in made["panels"]]
    assert len(set(ids)) == len(ids) == len(dashboard.panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in made["panels"]}
    assert len(places) == len(ids)
    assert made["uid"] == dashboard.name


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_is_explained_for_whoever_it_wakes(alert):
    headings = re.findall(r"^### (\w+)$", (REPOSITORY / RUNBOOK).read_text("utf-8"), re.MULTILINE)
    assert alert.name in headings


#: what makes each alert go off, as promtool writes series: from, step and number of samples, a minute apart
WRONG = {
    "BrokerDown": {'up{job="barnabas",instance="b1"}': "0x60"},
    "PartitionsOffline": {"kafka_controller_kafkacontroller_offlinepartitionscount": "2x60"},
    "PartitionsUnderMinIsr": {"kafka_server_replicamanager_underminisrpartitioncount": "1x60"},
    "PartitionsUnderReplicated": {"kafka_server_replicamanager_underreplicatedpartitions": "1x60"},
    "ControllersNotOne": {'kafka_controller_kafkacontroller_activecontrollercount{job="b"}': "0x60"},
    "LogDirectoryOffline": {"kafka_log_logmanager_offlinelogdirectorycount": "1x60"},
    "UncleanElection": {"kafka_controller_controllerstats_uncleanleaderelections_total": "0x55 3x10"},
    "LagGrowing": {'kafka_consumergroup_lag_sum{consumergroup="g",topic="t"}': "0+10x60"},
    "CommittedOffsetOutOfRange": {
        'kafka_consumergroup_current_offset{consumergroup="g",topic="t",partition="0"}': "5x60",
        'kafka_topic_partition_oldest_offset{topic="t",partition="0"}': "10x60",
        'kafka_topic_partition_current_offset{topic="t",partition="0"}': "20x60",
    },
    "DiskFullWithinADay": {'barnabas_log_directory_free_bytes{logdirectory="/d"}': "100000-100x60"},
    "LoopStalls": {"barnabas_loop_stalled_seconds_total": "0+6x60"},
    "TransactionsHang": {"kafka_server_replicamanager_partitionswithlatetransactionscount": "1x60"},
    "FsyncsFail": {'barnabas_failed_fsyncs_total{logdirectory="/d"}': "0x55 1x10"},
    "MetadataStoreAway": {'barnabas_metadata_session_state{state="connected"}': "0x60"},
}
RIGHT = {
    "BrokerDown": {'up{job="barnabas",instance="b1"}': "1x60"},
    "PartitionsOffline": {"kafka_controller_kafkacontroller_offlinepartitionscount": "0x60"},
    "PartitionsUnderReplicated": {"kafka_server_replicamanager_underreplicatedpartitions": "0x57 1x3"},
    "ControllersNotOne": {
        'kafka_controller_kafkacontroller_activecontrollercount{job="b",instance="1"}': "1x60"
    },
    "LagGrowing": {'kafka_consumergroup_lag_sum{consumergroup="g",topic="t"}': "1000-10x60"},
    "CommittedOffsetOutOfRange": {
        'kafka_consumergroup_current_offset{consumergroup="g",topic="t",partition="0"}': "10x60",
        'kafka_topic_partition_oldest_offset{topic="t",partition="0"}': "10x60",
        'kafka_topic_partition_current_offset{topic="t",partition="0"}': "20x60",
    },
    "DiskFullWithinADay": {'barnabas_log_directory_free_bytes{logdirectory="/d"}': "100000x60"},
    "LoopStalls": {"barnabas_loop_stalled_seconds_total": "0+1x60"},
    "MetadataStoreAway": {'barnabas_metadata_session_state{state="connected"}': "1x60"},
}


def test_every_alert_has_a_scenario():
    assert set(WRONG) == {alert.name for alert in ALERTS}


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")
def test_alerts_go_off_when_they_should_and_only_then(tmp_path):
    """promtool checks this, and also parses every expression."""
    rule_file = tmp_path / "rules.yml"
    rule_file.write_text(rules(), "utf-8")
    tests = []
    for scenarios, is_wrong in ((WRONG, True), (RIGHT, False)):
        for name, series in scenarios.items():
            counting = (
                f'count(ALERTS{{alertname="Barnabas{name}",alertstate="firing"}})',
                [{"labels": "{}", "value": 1}] if is_wrong else [],
            )
            tests.append(
                {
                    "interval": "1m",
                    "input_series": [{"series": key, "values": values} for key, values in series.items()],
                    "promql_expr_test": [
                        {"expr": counting[0], "eval_time": "60m", "exp_samples": counting[1]}
                    ],
                }
            )
    test_file = tmp_path / "tests.yml"  # JSON is YAML
    test_file.write_text(
        json.dumps({"rule_files": [str(rule_file)], "evaluation_interval": "1m", "tests": tests}), "utf-8"
    )
    for arguments in (["check", "rules", rule_file], ["test", "rules", test_file]):
        done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
