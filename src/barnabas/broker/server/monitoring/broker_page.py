"""The page ``/metrics``: metrics of the broker, its requests and its topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from barnabas import __version__
from barnabas.base.metrics import Durations
from barnabas.base.metrics.declaration import Sample
from barnabas.broker.metadata.store import SessionState
from barnabas.broker.server.monitoring.census import Census
from barnabas.broker.server.monitoring.sources import Sources
from barnabas.broker.server.telemetry.clients import TelemetryClients
from barnabas.broker.sharing.counts import LetterCounts
from barnabas.broker.sharing.in_flight import ACCEPT, REJECT, RELEASE, RENEW

if TYPE_CHECKING:
    from barnabas.base.environment.filesystem import Volume
    from barnabas.base.environment.process import ProcessUse


@dataclass(frozen=True, slots=True)
class Reading:
    """The values and the parts of the broker from which one response of ``/metrics`` is made."""

    sources: Sources
    census: Census
    #: the part of a core that the process has left unused since the last reading, from 0 to 1
    idle: float
    process: ProcessUse | None
    #: by log directory, as far as the system knows the volumes
    volumes: Mapping[str, Volume]


Sampler = Callable[[Reading], Iterator[Sample]]


def _one(value: Callable[[Reading], float | None]) -> Sampler:
    """Return a sampler of a metric without labels.

    The sampler is a function that yields one sample, `value(reading)`. It yields no sample if `value` returns
    None.
    """

    def sample(reading: Reading) -> Iterator[Sample]:
        found = value(reading)
        if found is not None:
            yield (), found

    return sample


def _traffic(attribute: str) -> Sampler:
    count_of = attrgetter(attribute)

    def sample(reading: Reading) -> Iterator[Sample]:
        replicas = reading.sources.replicas
        topics = list(replicas.traffic.items())
        yield ("",), count_of(replicas.gone_traffic) + sum(count_of(traffic) for _, traffic in topics)
        for topic, traffic in topics:
            yield (topic,), count_of(traffic)

    return sample


def _requests(reading: Reading) -> Iterator[tuple[str, Durations]]:
    for served in list(reading.sources.served.values()):
        if served.durations.count:
            yield served.api.name, served.durations


def _request_counts(reading: Reading) -> Iterator[Sample]:
    return (((name,), durations.count) for name, durations in _requests(reading))


def _request_durations(reading: Reading) -> Iterator[Sample]:
    return (((name,), durations) for name, durations in _requests(reading))


def _by_listener(counts: Callable[[Reading], Mapping[str, int]]) -> Sampler:
    return lambda reading: (((name,), count) for name, count in counts(reading).items())


def _closed(reading: Reading) -> Mapping[str, int]:
    connections = reading.sources.connections
    return {name: count - connections.open[name] for name, count in connections.opened.items()}


def _at_controller(value: Callable[[Reading], float]) -> Sampler:
    return _one(lambda reading: value(reading) if reading.sources.controller.active else 0)


def _session_state(reading: Reading) -> Iterator[Sample]:
    now = reading.sources.session.state
    return (((state.value,), int(state is now)) for state in SessionState)


def _session_changes(state: SessionState) -> Sampler:
    return _one(lambda reading: reading.sources.session.changes[state])


def _directories_offline(reading: Reading) -> Iterator[Sample]:
    logs = reading.sources.logs
    for directory in logs.directories:
        yield (directory.path,), int(directory.failure is not None)
    for path in logs.unopened:
        yield (path,), 1


def _fsyncs(reading: Reading) -> Iterator[Sample]:
    return (((each.path,), each.env.fsyncs) for each in reading.sources.logs.directories)


def _failed_fsyncs(reading: Reading) -> Iterator[Sample]:
    return (((each.path,), each.env.failed_fsyncs) for each in reading.sources.logs.directories)


def _all_fsyncs(reading: Reading) -> Iterator[Sample]:
    together = Durations()
    for directory in reading.sources.logs.directories:
        fsyncs = directory.env.fsyncs
        together.seconds += fsyncs.seconds
        together.counts = [a + b for a, b in zip(together.counts, fsyncs.counts, strict=True)]
    yield (), together


def _uncleanable(reading: Reading) -> Iterator[Sample]:
    logs, names = reading.sources.logs, reading.sources.cleaner.uncleanable
    for directory in logs.directories:
        yield (directory.path,), sum(name in directory.logs for name in names)


def _by_state(states: Callable[[Reading], Mapping[str, int]]) -> Sampler:
    return lambda reading: (((state,), count) for state, count in sorted(states(reading).items()))


_ACKNOWLEDGEMENT_TYPES = {ACCEPT: "Accept", RELEASE: "Release", REJECT: "Reject", RENEW: "Renew"}


def _acknowledgements(reading: Reading) -> Iterator[Sample]:
    counts = reading.sources.share_partitions.counts.acknowledgements
    return (((name,), counts[kind]) for kind, name in _ACKNOWLEDGEMENT_TYPES.items())


def _share_loads(reading: Reading) -> Iterator[Sample]:
    yield (), reading.sources.share_partitions.counts.loads


def _share_fetches(attribute: str) -> Sampler:
    value = attrgetter(attribute)
    return lambda reading: (
        ((group,), value(counts))
        for group, counts in list(reading.sources.share_partitions.counts.fetches.items())
    )


def _letters(value: Callable[[LetterCounts], int]) -> Sampler:
    return lambda reading: (
        ((group,), value(counts))
        for group, counts in list(reading.sources.share_partitions.counts.letters.items())
        if counts.requests
    )


def _members(reading: Reading) -> Iterator[Sample]:
    return (((group.group_id,), len(group.members)) for group in reading.sources.groups.loaded_groups())


def _topic_partitions(reading: Reading) -> Iterator[Sample]:
    if reading.sources.controller.active:
        for topic in list(reading.sources.view.image.topics.values()):
            yield (topic.name,), len(topic.partitions)


def _build(reading: Reading) -> Iterator[Sample]:
    yield (__version__, str(reading.sources.view.node_id), reading.sources.view.image.cluster_id), 1


def _process(attribute: str) -> Sampler:
    return _one(lambda reading: None if reading.process is None else getattr(reading.process, attribute))


def _counted(attribute: str) -> Sampler:
    return _one(lambda reading: getattr(reading.census, attribute))


SAMPLERS: Mapping[str, Sampler] = {
    **{
        f"kafka_server_brokertopicmetrics_{name}_total": _traffic(attribute)
        for name, attribute in (
            ("messagesin", "messages_in"),
            ("bytesin", "bytes_in"),
            ("bytesout", "bytes_out"),
            ("totalproducerequests", "produces"),
            ("failedproducerequests", "failed_produces"),
            ("totalfetchrequests", "fetches"),
            ("failedfetchrequests", "failed_fetches"),
            ("replicationbytesin", "replication_bytes_in"),
            ("replicationbytesout", "replication_bytes_out"),
        )
    },
    "kafka_network_requestmetrics_requests_total": _request_counts,
    "kafka_network_requestmetrics_totaltimems": _request_durations,
    "barnabas_request_seconds": _request_durations,
    "kafka_server_socket_server_metrics_connection_count": _by_listener(lambda r: r.sources.connections.open),
    "kafka_server_socket_server_metrics_connection_creation_total": _by_listener(
        lambda r: r.sources.connections.opened
    ),
    "kafka_server_socket_server_metrics_connection_close_total": _by_listener(_closed),
    "kafka_network_socketserver_networkprocessoravgidle_percent": _one(lambda r: r.idle),
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent": _one(lambda r: r.idle),
    "barnabas_loop_stalls_total": _one(lambda r: r.sources.loop_watch.stalls),
    "barnabas_loop_stalled_seconds_total": _one(lambda r: r.sources.loop_watch.stalled),
    "kafka_server_replicamanager_partitioncount": _counted("partitions"),
    "kafka_server_replicamanager_leadercount": _counted("leaders"),
    "kafka_server_replicamanager_underreplicatedpartitions": _counted("under_replicated"),
    "kafka_server_replicamanager_underminisrpartitioncount": _counted("under_min_isr"),
    "kafka_server_replicamanager_atminisrpartitioncount": _counted("at_min_isr"),
    "kafka_server_replicamanager_offlinereplicacount": _counted("offline"),
    "kafka_server_replicamanager_reassigningpartitions": _counted("reassigning"),
    "kafka_server_replicamanager_isrshrinks_total": _one(lambda r: r.sources.isr_changes.shrinks),
    "kafka_server_replicamanager_isrexpands_total": _one(lambda r: r.sources.isr_changes.expands),
    "kafka_server_replicamanager_failedisrupdates_total": _one(lambda r: r.sources.isr_changes.failures),
    "kafka_server_replicamanager_produceridcount": _counted("producers"),
    "kafka_server_replicamanager_partitionswithlatetransactionscount": _counted("late"),
    "barnabas_replica_lag_records": lambda r: (
        ((str(broker),), lag) for broker, lag in sorted(r.census.lag_records.items())
    ),
    "barnabas_replica_lag_seconds": lambda r: (
        ((str(broker),), lag) for broker, lag in sorted(r.census.lag_seconds.items())
    ),
    "kafka_controller_kafkacontroller_activecontrollercount": _one(
        lambda r: int(r.sources.controller.active)
    ),
    "kafka_controller_kafkacontroller_activebrokercount": _at_controller(
        lambda r: len(r.sources.view.image.brokers)
    ),
    "kafka_controller_kafkacontroller_globaltopiccount": _counted("cluster_topics"),
    "kafka_controller_kafkacontroller_globalpartitioncount": _counted("cluster_partitions"),
    "kafka_controller_kafkacontroller_offlinepartitionscount": _counted("without_leader"),
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": _counted("not_preferred"),
    "kafka_controller_controllerstats_uncleanleaderelections_total": _one(
        lambda r: r.sources.controller.unclean_elections
    ),
    "kafka_server_kafkaserver_brokerstate": _one(lambda r: r.sources.broker_state()),
    "kafka_server_sessionexpirelistener_zookeeperdisconnects_total": _session_changes(SessionState.SUSPENDED),
    "kafka_server_sessionexpirelistener_zookeeperexpires_total": _session_changes(SessionState.LOST),
    "barnabas_metadata_session_state": _session_state,
    "kafka_log_logmanager_offlinelogdirectorycount": _one(lambda r: len(r.sources.logs.failed_directories)),
    "kafka_log_logmanager_logdirectoryoffline": _directories_offline,
    "kafka_log_logflushstats_logflushrateandtimems": _all_fsyncs,
    "barnabas_fsync_seconds": _fsyncs,
    "barnabas_failed_fsyncs_total": _failed_fsyncs,
    "barnabas_log_directory_size_bytes": lambda r: (((path,), v.size) for path, v in r.volumes.items()),
    "barnabas_log_directory_free_bytes": lambda r: (((path,), v.free) for path, v in r.volumes.items()),
    "kafka_log_logcleanermanager_uncleanable_partitions_count": _uncleanable,
    "barnabas_cleaner_cleanings_total": _one(lambda r: r.sources.cleaner.cleanings),
    "barnabas_cleaner_failures_total": _one(lambda r: r.sources.cleaner.failures),
    "barnabas_cleaner_read_bytes_total": _one(lambda r: r.sources.cleaner.bytes_read),
    "barnabas_cleaner_written_bytes_total": _one(lambda r: r.sources.cleaner.bytes_written),
    "kafka_server_client_metrics_instance_count": _one(lambda r: len(r.sources.telemetry)),
    "barnabas_client_pushes_total": lambda r: (
        ((name,), count) for name, count in list(r.sources.telemetry.pushes.items())
    ),
    "barnabas_client_metric": lambda r: telemetry_samples(r.sources.telemetry, is_sum=False),
    "barnabas_client_metric_total": lambda r: telemetry_samples(r.sources.telemetry, is_sum=True),
    "barnabas_client_metrics_dropped_total": _one(lambda r: r.sources.telemetry.dropped),
    "kafka_coordinator_group_groupmetadatamanager_numgroups": _one(lambda r: r.census.groups.total()),
    "barnabas_groups": _by_state(lambda r: r.census.groups),
    "kafka_consumergroup_members": _members,
    "barnabas_transactions": _by_state(lambda r: r.census.transactions),
    "kafka_server_group_coordinator_metrics_group_count": lambda r: (
        ((kind,), count) for kind, count in sorted(r.census.protocols.items())
    ),
    "kafka_server_group_coordinator_metrics_share_group_count": _by_state(lambda r: r.census.share_groups),
    "kafka_server_group_coordinator_metrics_share_group_rebalance_count": _one(
        lambda r: r.sources.groups.share_rebalances.count
    ),
    "kafka_server_group_coordinator_metrics_share_group_rebalance_rate": _one(
        lambda r: r.sources.groups.share_rebalances.rate
    ),
    "kafka_server_sharesessioncache_sharesessionscount": _one(lambda r: len(r.sources.share_sessions)),
    "kafka_server_sharesessioncache_sharepartitionscount": _one(
        lambda r: r.sources.share_sessions.partitions
    ),
    "kafka_server_sharegroupmetrics_recordacknowledgements_total": _acknowledgements,
    "kafka_server_sharegroupmetrics_partitionloadtimems": _share_loads,
    "kafka_server_sharegroupmetrics_requesttopicpartitionsfetchratio": _share_fetches("ratios"),
    "kafka_server_sharegroupmetrics_topicpartitionsacquiretimems": _share_fetches("times"),
    "kafka_server_sharegroupmetrics_deadletterqueuerecordcount_total": _letters(lambda each: each.records),
    "kafka_server_sharegroupmetrics_deadletterqueuetotalproducerequests_total": _letters(
        lambda each: each.requests
    ),
    "kafka_server_sharegroupmetrics_deadletterqueuefailedproducerequests_total": _letters(
        lambda each: each.failed_requests
    ),
    "barnabas_share_partitions": _one(lambda r: r.sources.shares.count()),
    "kafka_server_share_coordinator_metrics_write_total": _one(lambda r: r.sources.shares.writes),
    "kafka_server_share_coordinator_metrics_last_pruned_offset": lambda r: (
        ((r.sources.shares.topic, str(partition)), offset)
        for partition, offset in r.sources.shares.last_pruned()
    ),
    "barnabas_oldest_transaction_seconds": _counted("oldest_transaction"),
    "kafka_brokers": _one(
        lambda r: len(r.sources.view.image.brokers) if r.sources.controller.active else None
    ),
    "kafka_topic_partitions": _topic_partitions,
    "kafka_exporter_build_info": lambda r: iter([((__version__,), 1)]),
    "barnabas_build_info": _build,
    "process_cpu_seconds_total": _process("cpu_seconds"),
    "process_resident_memory_bytes": _process("resident"),
    "process_virtual_memory_bytes": _process("virtual"),
    "process_open_fds": _process("open_files"),
    "process_max_fds": _process("max_files"),
    "process_start_time_seconds": _process("started"),
    "kafka_server_kafkaserver_linux_disk_read_bytes": _process("read_bytes"),
    "kafka_server_kafkaserver_linux_disk_write_bytes": _process("written_bytes"),
}


#: the attributes with a label of their own; all others share one
_OWN = ("topic", "partition", "node_id")
#: so that no two series look the same, whatever a client has pushed: Prometheus would refuse the page
_ESCAPES = str.maketrans({"\\": r"\\", ",": r"\,"})


def telemetry_samples(clients: TelemetryClients, *, is_sum: bool) -> Iterator[Sample]:
    """Yield a sample of each sum that clients have pushed, or of each gauge if `is_sum` is false.

    The labels are, in this order:

    - the metric's name;
    - the client id, the client instance id and the name of the client software;
    - the attributes ``topic``, ``partition`` and ``node_id``, "" for a missing one;
    - all other attributes, as ``name=value,name=value``.
    """
    for client in clients.shown():
        about = client.about
        who = tuple(
            about.get(name, "") for name in ("client_id", "client_instance_id", "client_software_name")
        )
        for (metric, attributes, is_counter), value in list(client.series.items()):
            if is_counter is is_sum:
                named = dict(attributes)
                own = tuple(named.pop(name, "") for name in _OWN)
                rest = ",".join(f"{name}={text.translate(_ESCAPES)}" for name, text in named.items())
                yield (metric, *who, *own, rest), value
