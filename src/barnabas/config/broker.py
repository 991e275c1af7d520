"""The settings of a broker (https://kafka.apache.org/documentation/#brokerconfigs): those Barnabas honours.

The defaults are Apache Kafka's but for those of a broker that comes up on one machine with nothing to set:
they are listed in docs/reference/differences.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from barnabas.config.kafka_only import unsupported_reason
from barnabas.config.setting import DOUBLE_MAX, INT_MAX, LONG_MAX, Type, Update, setting
from barnabas.config.settings import Settings
from barnabas.config.topic import COMPRESSION_TYPES


class BrokerConfig(Settings):
    """What holds for one broker."""

    spellings: ClassVar[Mapping[str, str]] = {"broker.id": "node.id", "log.dir": "log.dirs"}

    @classmethod
    def _explain_unknown(cls, name: str) -> str:
        reason = unsupported_reason(name)
        return super()._explain_unknown(name) if reason is None else f"{name} is not supported: {reason}"

    # --- who and where ---
    node_id: int = setting(
        Type.INT,
        1,
        minimum=0,
        doc="This broker's number, unique in its cluster.",
    )
    listeners: tuple[str, ...] = setting(
        Type.LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        doc="Where the broker listens: NAME://HOST:PORT, several by commas; port 0 takes a free one.",
    )
    advertised_listeners: tuple[str, ...] = setting(
        Type.LIST,
        (),
        doc="Where clients are told to connect, by listener name; empty means as in listeners.",
    )
    listener_security_protocol_map: str = setting(
        Type.STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        doc="The security protocol of each listener name, NAME:PROTOCOL. Only PLAINTEXT can be served yet.",
    )
    log_dirs: tuple[str, ...] = setting(
        Type.LIST,
        ("barnabas-data",),
        doc="The folders that hold the data.",
    )
    metadata_store: str | None = setting(
        Type.STRING,
        None,
        choices=("embedded", "memory", "zookeeper"),
        doc="Where the cluster's metadata lives: embedded (files beside the data), memory (lost at stop) or "
        "zookeeper. Unset means zookeeper if zookeeper.connect is set, else embedded.",
    )
    zookeeper_connect: str | None = setting(
        Type.STRING,
        None,
        doc="The ZooKeeper servers that the brokers of a cluster share: HOST:PORT,HOST:PORT/chroot. A chroot "
        "for each cluster keeps several in one ensemble apart; it is made if it is missing.",
    )
    zookeeper_session_timeout_ms: int = setting(
        Type.INT,
        18_000,
        minimum=1,
        doc="How long ZooKeeper hears nothing of a broker before it takes it for dead, in milliseconds; "
        "ZooKeeper may set bounds.",
    )
    zookeeper_connection_timeout_ms: int | None = setting(
        Type.INT,
        None,
        minimum=1,
        doc="How long a starting broker waits for ZooKeeper, in milliseconds. Unset means "
        "zookeeper.session.timeout.ms.",
    )
    zookeeper_max_in_flight_requests: int = setting(
        Type.INT,
        10,
        minimum=1,
        doc="How many requests to ZooKeeper may be unanswered at once; at most 200 are.",
    )
    zookeeper_set_acl: bool = setting(
        Type.BOOLEAN,
        False,
        doc="Whether only brokers may change the nodes in ZooKeeper. Not possible yet: brokers would have to "
        "authenticate with ZooKeeper.",
    )
    broker_rack: str | None = setting(Type.STRING, None, doc="The rack of this broker.")

    # --- connections ---
    socket_request_max_bytes: int = setting(
        Type.INT,
        104_857_600,
        minimum=1,
        doc="The largest request that is read, in bytes.",
    )
    socket_send_buffer_bytes: int = setting(
        Type.INT,
        102_400,
        minimum=-1,
        doc="SO_SNDBUF of each connection; -1 leaves it to the system.",
    )
    socket_receive_buffer_bytes: int = setting(
        Type.INT,
        102_400,
        minimum=-1,
        doc="SO_RCVBUF of each connection; -1 leaves it to the system.",
    )
    socket_listen_backlog_size: int = setting(
        Type.INT,
        50,
        minimum=1,
        doc="How many connections may wait to be accepted.",
    )
    connections_max_idle_ms: int = setting(
        Type.LONG,
        600_000,
        minimum=-1,
        doc="How long an idle connection is kept open, in milliseconds; -1 means for ever.",
    )
    max_connections: int = setting(
        Type.INT,
        INT_MAX,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="How many connections the broker takes.",
    )
    max_connections_per_ip: int = setting(
        Type.INT,
        INT_MAX,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="How many connections the broker takes from one address.",
    )

    # --- topics ---
    auto_create_topics_enable: bool = setting(
        Type.BOOLEAN,
        True,
        doc="Whether a request for a topic that does not exist creates it.",
    )
    delete_topic_enable: bool = setting(Type.BOOLEAN, True, doc="Whether topics may be deleted.")
    num_partitions: int = setting(
        Type.INT,
        1,
        minimum=1,
        doc="How many partitions a topic gets by default.",
    )
    default_replication_factor: int = setting(
        Type.INT,
        1,
        minimum=1,
        doc="How many replicas a partition gets by default.",
    )

    # --- fetch ---
    fetch_max_bytes: int = setting(
        Type.INT,
        57_671_680,
        minimum=1024,
        doc="The largest answer to one fetch, in bytes.",
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        Type.INT,
        1000,
        minimum=0,
        doc="How many fetch sessions (KIP-227) are kept.",
    )
    max_request_partition_size_limit: int = setting(
        Type.INT,
        2000,
        minimum=1,
        doc="How many partitions one DescribeTopicPartitions answer may hold.",
    )

    # --- the log: defaults for topics ---
    log_cleanup_policy: tuple[str, ...] = setting(
        Type.LIST,
        ("delete",),
        choices=("delete", "compact"),
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's cleanup.policy.",
    )
    compression_type: str = setting(
        Type.STRING,
        "producer",
        choices=COMPRESSION_TYPES,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's compression.type.",
    )
    log_segment_delete_delay_ms: int = setting(
        Type.LONG,
        60_000,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's file.delete.delay.ms.",
    )
    log_flush_interval_messages: int = setting(
        Type.LONG,
        LONG_MAX,
        minimum=1,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's flush.messages.",
    )
    log_flush_interval_ms: int | None = setting(
        Type.LONG,
        None,
        minimum=0,
        synonyms=("log.flush.scheduler.interval.ms",),
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's flush.ms; unset, log.flush.scheduler.interval.ms.",
    )
    log_flush_scheduler_interval_ms: int = setting(
        Type.LONG,
        LONG_MAX,
        minimum=1,
        doc="The default of log.flush.interval.ms, in milliseconds.",
    )
    log_index_interval_bytes: int = setting(
        Type.INT,
        4096,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's index.interval.bytes.",
    )
    log_index_size_max_bytes: int = setting(
        Type.INT,
        10_485_760,
        minimum=4,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's segment.index.bytes.",
    )
    message_max_bytes: int = setting(
        Type.INT,
        1_048_588,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's max.message.bytes.",
    )
    log_message_timestamp_after_max_ms: int = setting(
        Type.LONG,
        3_600_000,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's message.timestamp.after.max.ms.",
    )
    log_message_timestamp_before_max_ms: int = setting(
        Type.LONG,
        LONG_MAX,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's message.timestamp.before.max.ms.",
    )
    log_message_timestamp_type: str = setting(
        Type.STRING,
        "CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's message.timestamp.type.",
    )
    min_insync_replicas: int = setting(
        Type.INT,
        1,
        minimum=1,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's min.insync.replicas.",
    )
    log_retention_bytes: int = setting(
        Type.LONG,
        -1,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's retention.bytes.",
    )
    log_retention_ms: int | None = setting(
        Type.LONG,
        None,
        minimum=-1,
        synonyms=("log.retention.minutes", "log.retention.hours"),
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's retention.ms; unset, log.retention.minutes.",
    )
    log_retention_minutes: int | None = setting(
        Type.INT,
        None,
        doc="Retention in minutes; unset, log.retention.hours.",
    )
    log_retention_hours: int = setting(Type.INT, 168, doc="Retention in hours.")
    log_segment_bytes: int = setting(
        Type.INT,
        1_073_741_824,
        minimum=14,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's segment.bytes.",
    )
    log_roll_jitter_ms: int | None = setting(
        Type.LONG,
        None,
        minimum=0,
        synonyms=("log.roll.jitter.hours",),
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's segment.jitter.ms; unset, log.roll.jitter.hours.",
    )
    log_roll_jitter_hours: int = setting(Type.INT, 0, minimum=0, doc="Segment jitter in hours.")
    log_roll_ms: int | None = setting(
        Type.LONG,
        None,
        minimum=1,
        synonyms=("log.roll.hours",),
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's segment.ms; unset, log.roll.hours.",
    )
    log_roll_hours: int = setting(Type.INT, 168, minimum=1, doc="A segment's greatest age in hours.")

    log_cleaner_delete_retention_ms: int = setting(
        Type.LONG,
        86_400_000,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's delete.retention.ms.",
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        Type.LONG,
        LONG_MAX,
        minimum=1,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's max.compaction.lag.ms.",
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        Type.DOUBLE,
        0.5,
        minimum=0,
        maximum=1,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's min.cleanable.dirty.ratio.",
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        Type.LONG,
        0,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="The default of a topic's min.compaction.lag.ms.",
    )

    # --- the log: compaction ---
    log_cleaner_enable: bool = setting(
        Type.BOOLEAN, True, doc="Whether topics with cleanup.policy=compact are compacted."
    )
    log_cleaner_threads: int = setting(
        Type.INT,
        1,
        minimum=0,
        doc="How many logs are compacted at a time.",
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        Type.LONG,
        134_217_728,
        minimum=1,
        update=Update.CLUSTER_WIDE,
        doc="The memory for the keys of the logs being compacted, all together, in bytes.",
    )
    log_cleaner_io_buffer_size: int = setting(
        Type.INT,
        524_288,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="The memory for reading and writing the logs being compacted, all together, in bytes.",
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        Type.DOUBLE,
        DOUBLE_MAX,
        minimum=1,
        update=Update.CLUSTER_WIDE,
        doc="How fast compaction may read and write, in bytes a second.",
    )
    log_cleaner_backoff_ms: int = setting(
        Type.LONG,
        15_000,
        minimum=0,
        update=Update.CLUSTER_WIDE,
        doc="How long to wait when no log is dirty enough to compact, in milliseconds.",
    )

    # --- the log: upkeep ---
    log_retention_check_interval_ms: int = setting(
        Type.LONG,
        300_000,
        minimum=1,
        doc="How often retention is applied to the logs, in milliseconds.",
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        Type.INT,
        60_000,
        minimum=0,
        doc="How often the recovery points are stored, in milliseconds.",
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        Type.INT,
        60_000,
        minimum=0,
        doc="How often the log start offsets are stored, in milliseconds.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        Type.LONG,
        5000,
        minimum=1,
        doc="How often the high watermarks are stored, in milliseconds.",
    )
    num_recovery_threads_per_data_dir: int = setting(
        Type.INT,
        2,
        minimum=1,
        doc="How many threads read a data folder back after a crash.",
    )
    barnabas_acks_fsync: bool = setting(
        Type.BOOLEAN,
        False,
        doc="Whether an acknowledged record (acks 1 and all) is fsynced first; requests share fsyncs.",
    )
    producer_id_expiration_ms: int = setting(
        Type.INT,
        86_400_000,
        minimum=1,
        update=Update.CLUSTER_WIDE,
        doc="How long the state of an inactive idempotent producer is kept, in milliseconds.",
    )
    producer_id_expiration_check_interval_ms: int = setting(
        Type.INT,
        600_000,
        minimum=1,
        doc="How often expired producer state is removed, in milliseconds.",
    )

    # --- groups ---
    group_initial_rebalance_delay_ms: int = setting(
        Type.INT,
        0,
        minimum=0,
        doc="How long an empty group waits for more members before its first round, in milliseconds.",
    )
    group_min_session_timeout_ms: int = setting(
        Type.INT,
        6000,
        minimum=0,
        doc="The shortest session timeout that a member may request, in milliseconds.",
    )
    group_max_session_timeout_ms: int = setting(
        Type.INT,
        1_800_000,
        minimum=0,
        doc="The longest session timeout that a member may request, in milliseconds.",
    )
    group_max_size: int = setting(
        Type.INT, INT_MAX, minimum=1, doc="How many members a classic group may have."
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        Type.LIST,
        ("classic", "consumer"),
        choices=("classic", "consumer"),
        doc="By which protocols groups may be formed; classic has to be one of them.",
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        Type.LIST,
        ("uniform", "range"),
        choices=("uniform", "range"),
        doc="The assignors of the consumer protocol; the first is the default for members that name none.",
    )
    group_consumer_migration_policy: str = setting(
        Type.STRING,
        "bidirectional",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
        doc="Which way groups in use may change between the classic and the consumer protocol.",
    )
    group_consumer_max_size: int = setting(
        Type.INT, INT_MAX, minimum=1, doc="How many members a group of the consumer protocol may have."
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        Type.INT,
        5000,
        minimum=1,
        doc="How often members of the consumer protocol send heartbeats, in milliseconds.",
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        Type.INT,
        5000,
        minimum=1,
        doc="The shortest heartbeat interval a group may be given, in milliseconds.",
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        Type.INT,
        15_000,
        minimum=1,
        doc="The longest heartbeat interval a group may be given, in milliseconds.",
    )
    group_consumer_session_timeout_ms: int = setting(
        Type.INT,
        45_000,
        minimum=1,
        doc="How long a member of the consumer protocol may send no heartbeat, in milliseconds.",
    )
    group_consumer_min_session_timeout_ms: int = setting(
        Type.INT,
        45_000,
        minimum=1,
        doc="The shortest session timeout a group of the consumer protocol may be given, in milliseconds.",
    )
    group_consumer_max_session_timeout_ms: int = setting(
        Type.INT,
        60_000,
        minimum=1,
        doc="The longest session timeout a group of the consumer protocol may be given, in milliseconds.",
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        Type.INT,
        600_000,
        minimum=10_000,
        doc="How often at least regular expressions of subscriptions are resolved again, in milliseconds.",
    )
    offset_metadata_max_bytes: int = setting(
        Type.INT,
        4096,
        minimum=0,
        doc="How long the metadata of a committed offset may be, in bytes.",
    )
    offsets_commit_timeout_ms: int = setting(
        Type.INT,
        5000,
        minimum=1,
        doc="How long a commit may wait for its replicas, in milliseconds.",
    )
    offsets_retention_minutes: int = setting(
        Type.INT,
        10_080,
        minimum=1,
        doc="How long the offsets of an empty group are kept, in minutes.",
    )
    offsets_retention_check_interval_ms: int = setting(
        Type.LONG,
        600_000,
        minimum=1,
        doc="How often expired committed offsets are removed, in milliseconds.",
    )
    offsets_topic_num_partitions: int = setting(
        Type.INT,
        50,
        minimum=1,
        doc="The number of partitions of __consumer_offsets; it applies when that topic is created.",
    )
    offsets_topic_replication_factor: int = setting(
        Type.SHORT,
        1,
        minimum=1,
        doc="The replicas of __consumer_offsets.",
    )
    offsets_topic_segment_bytes: int = setting(
        Type.INT,
        104_857_600,
        minimum=1,
        doc="The segment size of __consumer_offsets, in bytes.",
    )

    # --- transactions ---
    transaction_max_timeout_ms: int = setting(
        Type.INT,
        900_000,
        minimum=1,
        doc="The longest transaction.timeout.ms that a producer may request.",
    )
    transactional_id_expiration_ms: int = setting(
        Type.INT,
        604_800_000,
        minimum=1,
        doc="How long a transactional id that nobody uses is remembered, in milliseconds.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        Type.INT,
        10_000,
        minimum=1,
        doc="How often transactions that have exceeded their timeout are aborted, in milliseconds.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        Type.INT,
        3_600_000,
        minimum=1,
        doc="How often expired transactional ids are removed, in milliseconds.",
    )
    transaction_partition_verification_enable: bool = setting(
        Type.BOOLEAN,
        True,
        update=Update.CLUSTER_WIDE,
        doc="Whether a write is checked to belong to an open transaction before it is taken (KIP-890).",
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        Type.INT,
        20,
        minimum=1,
        doc="How long a write waits before it asks again whether the transaction before has ended.",
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        Type.INT,
        100,
        minimum=0,
        doc="How long a write waits at most for the transaction before to end, in milliseconds.",
    )
    transaction_state_log_num_partitions: int = setting(
        Type.INT,
        50,
        minimum=1,
        doc="The number of partitions of __transaction_state; it applies when that topic is created.",
    )
    transaction_state_log_replication_factor: int = setting(
        Type.SHORT,
        1,
        minimum=1,
        doc="The replicas of __transaction_state.",
    )
    transaction_state_log_min_isr: int = setting(
        Type.INT,
        1,
        minimum=1,
        doc="The min.insync.replicas of __transaction_state.",
    )
    transaction_state_log_segment_bytes: int = setting(
        Type.INT,
        104_857_600,
        minimum=1,
        doc="The segment size of __transaction_state, in bytes.",
    )
    request_timeout_ms: int = setting(
        Type.INT,
        30_000,
        minimum=1,
        doc="How long one broker waits for another's answer, in milliseconds.",
    )
