"""All metrics of a broker, each declared once.

Names that begin with ``kafka_`` are the names in common dashboards and alerts for Apache Kafka. They are the
lower-case names that jmx_exporter gives to Kafka's JMX beans, and the names of kafka_exporter and
kafka-lag-exporter. Metrics with other names exist only in Barnabas.
"""

from __future__ import annotations

from barnabas.base.metrics.declaration import Kind, Metric, Page

_C, _G, _H, _S = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM, Kind.SUMMARY
_TOPIC = ("topic",)
_PARTITION = ("topic", "partition")
_CLIENT = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "topic",
    "partition",
    "node_id",
    "attributes",
)
_GROUP = ("consumergroup", "topic", "partition")
_SHARE = ("group", "topic", "partition")

_BROKER = (
    # topics
    Metric("kafka_server_brokertopicmetrics_messagesin_total", _C, _TOPIC, "Records appended as leader; the series without a topic is the sum, here and below."),
    Metric("kafka_server_brokertopicmetrics_bytesin_total", _C, _TOPIC, "Bytes of batches appended as leader."),
    Metric("kafka_server_brokertopicmetrics_bytesout_total", _C, _TOPIC, "Bytes of batches sent to consumers."),
    Metric("kafka_server_brokertopicmetrics_totalproducerequests_total", _C, _TOPIC, "Requested appends to partitions."),
    Metric("kafka_server_brokertopicmetrics_failedproducerequests_total", _C, _TOPIC, "Appends to "
                                                                                      "partitions that "
                                                                                      "the broker "
                                                                                      "rejected."),
    Metric("kafka_server_brokertopicmetrics_totalfetchrequests_total", _C, _TOPIC, "Reads of partitions for consumers."),
    Metric("kafka_server_brokertopicmetrics_failedfetchrequests_total", _C, _TOPIC, "Reads of partitions for consumers that ended with an error."),
    Metric("kafka_server_brokertopicmetrics_replicationbytesin_total", _C, _TOPIC, "Bytes of batches copied from leaders."),
    Metric("kafka_server_brokertopicmetrics_replicationbytesout_total", _C, _TOPIC, "Bytes of batches sent to followers."),
    # requests and connections
    Metric("kafka_network_requestmetrics_requests_total", _C, ("request",), "Answered requests, by API."),
    Metric("kafka_network_requestmetrics_totaltimems", _S, ("request",), "Milliseconds from a request's arrival to its answer, waiting included, since the start; estimated from barnabas_request_seconds."),
    Metric("barnabas_request_seconds", _H, ("request",), "Seconds from a request's arrival to its answer, waiting included, by API."),
    Metric("kafka_server_socket_server_metrics_connection_count", _G, ("listener",), "Open connections."),
    Metric("kafka_server_socket_server_metrics_connection_creation_total", _C, ("listener",), "Accepted connections."),
    Metric("kafka_server_socket_server_metrics_connection_close_total", _C, ("listener",), "Connections that have ended."),
    Metric("kafka_network_socketserver_networkprocessoravgidle_percent", _G, (), "The part of one core, from 0 to 1, that the process has not used since the last reading. One event loop does everything, so the next metric is the same."),
    Metric("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", _G, (), "The same as the previous metric."),
    # the event loop
    Metric("barnabas_loop_stalls_total", _C, (), "Stalls of the event loop of more than 0.1 s."),
    Metric("barnabas_loop_stalled_seconds_total", _C, (), "Seconds of these stalls."),
    # replicas
    Metric("kafka_server_replicamanager_partitioncount", _G, (), "Partitions that this broker has a replica of."),
    Metric("kafka_server_replicamanager_leadercount", _G, (), "Partitions that this broker leads."),
    Metric("kafka_server_replicamanager_underreplicatedpartitions", _G, (), "Partitions that this broker leads, with replicas out of sync."),
    Metric("kafka_server_replicamanager_underminisrpartitioncount", _G, (), "Partitions that this broker leads, with fewer replicas in sync than min.insync.replicas."),
    Metric("kafka_server_replicamanager_atminisrpartitioncount", _G, (), "Partitions that this broker leads, with exactly min.insync.replicas replicas in sync."),
    Metric("kafka_server_replicamanager_offlinereplicacount", _G, (), "Replicas on this broker whose log is offline."),
    Metric("kafka_server_replicamanager_reassigningpartitions", _G, (), "Partitions that this broker leads and that are being reassigned."),
    Metric("kafka_server_replicamanager_isrshrinks_total", _C, (), "Shrinks of the ISR of a partition that this broker leads: a replica left it."),
    Metric("kafka_server_replicamanager_isrexpands_total", _C, (), "Expansions of the ISR of a partition that this broker leads: a replica joined it."),
    Metric("kafka_server_replicamanager_failedisrupdates_total", _C, (), "ISR changes that the controller "
                                                                         "rejected."),
    Metric("kafka_server_replicamanager_produceridcount", _G, (), "Producer ids with state in the logs of this broker."),
    Metric("kafka_server_replicamanager_partitionswithlatetransactionscount", _G, (), "Partitions with a transaction that has been open for longer than transaction.max.timeout.ms and five minutes together: it hangs (KIP-664)."),
    Metric("barnabas_replica_lag_records", _G, ("follower",), "Records that a follower lacks, of all partitions that this broker leads."),
    Metric("barnabas_replica_lag_seconds", _G, ("follower",), "Seconds since a follower had all records of a partition: the largest value of the partitions that this broker leads."),
    # the controller
    Metric("kafka_controller_kafkacontroller_activecontrollercount", _G, (), "1 at the controller, else 0."),
    Metric("kafka_controller_kafkacontroller_activebrokercount", _G, (), "Live brokers, at the controller; else 0."),
    Metric("kafka_controller_kafkacontroller_globaltopiccount", _G, (), "Topics, at the controller; else 0."),
    Metric("kafka_controller_kafkacontroller_globalpartitioncount", _G, (), "Partitions, at the controller; else 0."),
    Metric("kafka_controller_kafkacontroller_offlinepartitionscount", _G, (), "Partitions without a leader, at the controller; else 0."),
    Metric("kafka_controller_kafkacontroller_preferredreplicaimbalancecount", _G, (), "Partitions that their first replica does not lead, at the controller; else 0."),
    Metric("kafka_controller_controllerstats_uncleanleaderelections_total", _C, (), "Partitions for which this broker, as controller, has elected a leader that may lack records."),
    Metric("kafka_server_kafkaserver_brokerstate", _G, (), "1 starting, 3 running, 6 shutting down."),
    Metric("kafka_server_sessionexpirelistener_zookeeperdisconnects_total", _C, (), "Lost connections with ZooKeeper."),
    Metric("kafka_server_sessionexpirelistener_zookeeperexpires_total", _C, (), "Sessions of this broker that ZooKeeper has expired."),
    Metric("barnabas_metadata_session_state", _G, ("state",), "1 for the present state of the session with the metadata store."),
    # logs
    Metric("kafka_log_logmanager_offlinelogdirectorycount", _G, (), "Log directories that have failed."),
    Metric("kafka_log_logmanager_logdirectoryoffline", _G, ("logdirectory",), "1 for a log directory that has failed."),
    Metric("kafka_log_logflushstats_logflushrateandtimems", _S, (), "Milliseconds that fsyncs of logs took, since the start; estimated from barnabas_fsync_seconds."),
    Metric("barnabas_fsync_seconds", _H, ("logdirectory",), "Seconds that fsyncs of logs took, the wait for a thread included."),
    Metric("barnabas_failed_fsyncs_total", _C, ("logdirectory",), "Fsyncs of logs that failed."),
    Metric("barnabas_log_directory_size_bytes", _G, ("logdirectory",), "The size of a log directory's volume."),
    Metric("barnabas_log_directory_free_bytes", _G, ("logdirectory",), "The free space of a log directory's volume."),
    Metric("kafka_log_logcleanermanager_uncleanable_partitions_count", _G, ("logdirectory",), "Logs whose latest cleaning has failed."),
    Metric("barnabas_cleaner_cleanings_total", _C, (), "Logs that were compacted."),
    Metric("barnabas_cleaner_failures_total", _C, (), "Compactions that failed."),
    Metric("barnabas_cleaner_read_bytes_total", _C, (), "Bytes that compactions have read."),
    Metric("barnabas_cleaner_written_bytes_total", _C, (), "Bytes that compactions have written."),
    # clients (KIP-714)
    Metric("kafka_server_client_metrics_instance_count", _G, (), "Clients that push metrics to this broker."),
    Metric("barnabas_client_pushes_total", _C, ("error",), "Pushes of clients' metrics, by the error in the response; NONE is success."),
    Metric("barnabas_client_metric", _G, ("metric", *_CLIENT), "The latest value of a gauge that a client has pushed. At most 500 series of a client and 50,000 in all, here and below."),
    Metric("barnabas_client_metric_total", _C, ("metric", *_CLIENT), "The sum that a client has pushed."),
    Metric("barnabas_client_metrics_dropped_total", _C, (), "Pushed values that exceeded the limits."),
    # coordinators
    Metric("kafka_coordinator_group_groupmetadatamanager_numgroups", _G, (), "Groups that this broker coordinates."),
    Metric("barnabas_groups", _G, ("state",), "Groups that this broker coordinates, by state."),
    Metric("kafka_consumergroup_members", _G, ("consumergroup",), "Members of a group, at its coordinator."),
    Metric("barnabas_transactions", _G, ("state",), "Transactional ids that this broker coordinates, by state."),
    Metric("kafka_server_group_coordinator_metrics_group_count", _G, ("protocol",), "Groups that this broker coordinates, by protocol: classic, consumer, share."),
    Metric("kafka_server_group_coordinator_metrics_share_group_count", _G, ("state",), "Share groups that this broker coordinates, by state."),
    Metric("kafka_server_group_coordinator_metrics_share_group_rebalance_count", _C, (), "Rebalances of share groups that this broker coordinates: new members, other subscriptions, or new partitions."),
    Metric("kafka_server_group_coordinator_metrics_share_group_rebalance_rate", _G, (), "These rebalances in a second, over the last 30 to 60 seconds."),
    Metric("kafka_server_sharesessioncache_sharesessionscount", _G, (), "Share sessions: members of share groups that fetch from this broker."),
    Metric("kafka_server_sharesessioncache_sharepartitionscount", _G, (), "Partitions in all share sessions together."),
    Metric("kafka_server_sharegroupmetrics_recordacknowledgements_total", _C, ("acktype",), "Records that members of share groups have acknowledged, by type: Accept, Release, Reject, Renew."),
    Metric("kafka_server_sharegroupmetrics_partitionloadtimems", _S, (), "Milliseconds from the first fetch of a share group's partition until its stored state was loaded; estimated."),
    Metric("kafka_server_sharegroupmetrics_requesttopicpartitionsfetchratio", _S, ("group",), "Percentages of the partitions in a share group's fetch from which the fetch has acquired records; only of groups that have acquired records on this broker."),
    Metric("kafka_server_sharegroupmetrics_topicpartitionsacquiretimems", _S, ("group",), "Milliseconds until a share group's fetch has acquired records, or its wait has ended; only of groups that have acquired records on this broker; estimated."),
    Metric("kafka_server_sharegroupmetrics_deadletterqueuerecordcount_total", _C, ("group",), "Records of a share group that this broker has settled with a dead letter."),
    Metric("kafka_server_sharegroupmetrics_deadletterqueuetotalproducerequests_total", _C, ("group",), "Attempts to write a batch of dead letters of a share group."),
    Metric("kafka_server_sharegroupmetrics_deadletterqueuefailedproducerequests_total", _C, ("group",), "Attempts to write a batch of dead letters of a share group that failed."),
    Metric("barnabas_share_partitions", _G, (), "Partitions of share groups whose state this broker coordinates."),
    Metric("kafka_server_share_coordinator_metrics_write_total", _C, (), "Changes of share groups' states that this broker was asked to store."),
    Metric("kafka_server_share_coordinator_metrics_last_pruned_offset", _G, _PARTITION, "The offset up to which this broker last deleted superseded records of __share_group_state."),
    Metric("barnabas_oldest_transaction_seconds", _G, (), "The age of the oldest open transaction that this broker coordinates; 0 without one."),
    # the cluster, as kafka_exporter has it
    Metric("kafka_brokers", _G, (), "Live brokers, at the controller."),
    Metric("kafka_topic_partitions", _G, _TOPIC, "Partitions of a topic, at the controller."),
    Metric("kafka_exporter_build_info", _G, ("version",), "Always 1; dashboards find the cluster by it."),
    Metric("barnabas_build_info", _G, ("version", "node_id", "cluster_id"), "Always 1."),
    # the process
    Metric("process_cpu_seconds_total", _C, (), "Processor time of the process."),
    Metric("process_resident_memory_bytes", _G, (), "Memory that the process uses."),
    Metric("process_virtual_memory_bytes", _G, (), "Address space of the process."),
    Metric("process_open_fds", _G, (), "Open files and connections."),
    Metric("process_max_fds", _G, (), "The largest number of open files and connections."),
    Metric("process_start_time_seconds", _G, (), "The start time of the process, in seconds since 1970."),
    Metric("kafka_server_kafkaserver_linux_disk_read_bytes", _C, (), "Bytes that the system has read from disks for the process."),
    Metric("kafka_server_kafkaserver_linux_disk_write_bytes", _C, (), "Bytes that the system has written to disks for the process."),
)  # fmt: skip

_PARTITIONS = tuple(
    Metric(name, kind, labels, text, Page.PARTITIONS)
    for name, kind, labels, text in (
        ("kafka_log_log_size", _G, _PARTITION, "Bytes of a replica on this broker."),
        ("kafka_log_log_numlogsegments", _G, _PARTITION, "Segments of a replica on this broker."),
        ("kafka_log_log_logstartoffset", _G, _PARTITION, "The first offset of a replica on this broker."),
        ("kafka_log_log_logendoffset", _G, _PARTITION, "The next offset of a replica on this broker."),
        ("kafka_cluster_partition_replicascount", _G, _PARTITION, "Replicas of a partition. Only the partition's leader has the kafka_cluster_partition metrics."),
        ("kafka_cluster_partition_insyncreplicascount", _G, _PARTITION, "Replicas in sync."),
        ("kafka_cluster_partition_underreplicated", _G, _PARTITION, "1 with replicas out of sync."),
        ("kafka_cluster_partition_underminisr", _G, _PARTITION, "1 with fewer replicas in sync than min.insync.replicas."),
        ("kafka_cluster_partition_atminisr", _G, _PARTITION, "1 with exactly min.insync.replicas replicas in sync."),
        ("kafka_cluster_partition_laststableoffsetlag", _G, _PARTITION, "Records between the last stable offset and the high watermark."),
        ("kafka_topic_partition_current_offset", _G, _PARTITION, "The high watermark. Only the partition's leader has the kafka_topic_partition metrics."),
        ("kafka_topic_partition_oldest_offset", _G, _PARTITION, "The first offset."),
        ("kafka_topic_partition_leader", _G, _PARTITION, "The id of the leader. The controller has -1 for a partition without a leader."),
        ("kafka_topic_partition_leader_is_preferred", _G, _PARTITION, "1 if the first replica leads."),
        ("kafka_topic_partition_replicas", _G, _PARTITION, "Replicas."),
        ("kafka_topic_partition_in_sync_replica", _G, _PARTITION, "Replicas in sync."),
        ("kafka_topic_partition_under_replicated_partition", _G, _PARTITION, "1 with replicas out of sync."),
        ("barnabas_partition_replica_lag_records", _G, (*_PARTITION, "follower"), "Records that a follower lacks, at the leader."),
        ("kafka_server_sharepartitionmetrics_inflightmessagecount", _G, _SHARE, "Records of a share group in flight. Only the partition's leader has the kafka_server_sharepartitionmetrics."),
        ("kafka_server_sharepartitionmetrics_inflightbatchcount", _G, _SHARE, "Ranges of records with the same state among those in flight."),
        ("kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total", _C, _SHARE, "Records whose lock has expired, since the leader began to use the share partition."),
        ("kafka_consumergroup_current_offset", _G, _GROUP, "The committed offset of a group. Only the group's coordinator has the kafka_consumergroup metrics."),
        ("kafka_consumergroup_lag", _G, _GROUP, "Records between the committed offset and the high watermark; -1 if the leader does not answer."),
        ("kafka_consumergroup_group_lag_seconds", _G, ("group", "topic", "partition"), "Seconds since the committed offset was the end of the partition, estimated from the ends at earlier readings. After a start of the broker, it is a lower bound."),
        ("kafka_consumergroup_current_offset_sum", _G, ("consumergroup", "topic"), "The sum of the committed offsets of a topic."),
        ("kafka_consumergroup_lag_sum", _G, ("consumergroup", "topic"), "The sum of the lags in a topic."),
    )
)  # fmt: skip

#: all metrics by name, in the order of the metrics pages
METRICS = {metric.name: metric for metric in (*_BROKER, *_PARTITIONS)}
