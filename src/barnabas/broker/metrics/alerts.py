"""Alert rules for Prometheus. Each rule detects a state that an operator should check soon."""

from __future__ import annotations

import json
from typing import NamedTuple

#: the page that explains the alerts, with a heading for each
RUNBOOK = "docs/use/operations.md"


class Alert(NamedTuple):
    """A rule for Prometheus that raises one alert."""

    #: without the prefix "Barnabas"
    name: str
    #: the condition of the alert, in PromQL
    expression: str
    #: the time for which the condition must hold, such as "5m"
    lasting: str
    severity: str
    summary: str


_OLDEST = "max by (topic, partition) (kafka_topic_partition_oldest_offset)"
_NEWEST = "max by (topic, partition) (kafka_topic_partition_current_offset)"

ALERTS = (
    Alert(
        "BrokerDown",
        'up{job=~".*barnabas.*"} == 0',
        "1m",
        "critical",
        "{{ $labels.instance }} does not answer.",
    ),
    Alert(
        "PartitionsOffline",
        "kafka_controller_kafkacontroller_offlinepartitionscount > 0",
        "1m",
        "critical",
        "{{ $value }} partitions have no leader: nobody can write or read them.",
    ),
    Alert(
        "PartitionsUnderMinIsr",
        "kafka_server_replicamanager_underminisrpartitioncount > 0",
        "1m",
        "critical",
        "{{ $value }} partitions led by {{ $labels.instance }} refuse writes with acks=all.",
    ),
    Alert(
        "PartitionsUnderReplicated",
        "kafka_server_replicamanager_underreplicatedpartitions > 0",
        "5m",
        "warning",
        "{{ $value }} partitions led by {{ $labels.instance }} lack replicas in sync.",
    ),
    Alert(
        "ControllersNotOne",
        "sum by (job) (kafka_controller_kafkacontroller_activecontrollercount) != 1",
        "1m",
        "critical",
        "{{ $value }} brokers say that they are the controller.",
    ),
    Alert(
        "LogDirectoryOffline",
        "kafka_log_logmanager_offlinelogdirectorycount > 0",
        "0m",
        "critical",
        "{{ $value }} log directories of {{ $labels.instance }} have failed.",
    ),
    Alert(
        "UncleanElection",
        "increase(kafka_controller_controllerstats_uncleanleaderelections_total[10m]) > 0",
        "0m",
        "critical",
        "Partitions have got leaders that may lack acknowledged records.",
    ),
    Alert(
        "LagGrowing",
        "delta(kafka_consumergroup_lag_sum[5m]) > 0",
        "15m",
        "warning",
        "Group {{ $labels.consumergroup }} falls ever further behind in {{ $labels.topic }}.",
    ),
    Alert(
        "CommittedOffsetOutOfRange",
        f"kafka_consumergroup_current_offset < on (topic, partition) group_left () {_OLDEST}"
        f" or kafka_consumergroup_current_offset > on (topic, partition) group_left () {_NEWEST}",
        "5m",
        "warning",
        "Group {{ $labels.consumergroup }} has committed an offset of {{ $labels.topic }}-"
        "{{ $labels.partition }} that is not there: records were deleted unread, or it is another topic.",
    ),
    Alert(
        "DiskFullWithinADay",
        "predict_linear(barnabas_log_directory_free_bytes[6h], 86400) < 0",
        "30m",
        "warning",
        "{{ $labels.logdirectory }} of {{ $labels.instance }} will be full within a day.",
    ),
    Alert(
        "LoopStalls",
        "rate(barnabas_loop_stalled_seconds_total[5m]) > 0.05",
        "5m",
        "warning",
        "{{ $labels.instance }} stands still for more than a twentieth of the time.",
    ),
    Alert(
        "TransactionsHang",
        "kafka_server_replicamanager_partitionswithlatetransactionscount > 0",
        "5m",
        "warning",
        "{{ $value }} partitions of {{ $labels.instance }} have a transaction that nobody will end: "
        "read_committed consumers wait there for ever.",
    ),
    Alert(
        "FsyncsFail",
        "increase(barnabas_failed_fsyncs_total[10m]) > 0",
        "0m",
        "critical",
        "Fsyncs in {{ $labels.logdirectory }} of {{ $labels.instance }} fail.",
    ),
    Alert(
        "MetadataStoreAway",
        'barnabas_metadata_session_state{state="connected"} == 0',
        "1m",
        "critical",
        "{{ $labels.instance }} does not reach the metadata store: it serves, but nobody can be elected.",
    ),
)


def rules() -> str:
    """Return the content of a Prometheus rules file, in YAML, with all `ALERTS`."""
    lines = ["groups:", "  - name: barnabas", "    rules:"]
    for alert in ALERTS:
        lines += [
            f"      - alert: Barnabas{alert.name}",
            f"        expr: {json.dumps(alert.expression)}",
            f"        for: {alert.lasting}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
            f"          runbook: {RUNBOOK}#{alert.name.lower()}",
        ]
    return "\n".join(lines) + "\n"
