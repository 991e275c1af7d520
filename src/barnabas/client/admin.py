"""Administers a cluster's topics, settings, users, groups and offsets, without librdkafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from barnabas.base.errors import ErrorCode
from barnabas.base.types import BrokerId, TopicPartition
from barnabas.client import (
    config_calls,
    consumer_groups,
    features,
    offset_calls,
    passwords,
    share_groups,
    topic_calls,
)
from barnabas.client.admin_types import (
    ClusterDescription,
    ConfigValue,
    GroupDescription,
    GroupListing,
    TopicDescription,
    described,
)
from barnabas.client.brokers import Brokers, check, repeatable
from barnabas.client.connection import BrokerConnection
from barnabas.client.errors import ClientError
from barnabas.client.log_dirs import replica_sizes
from barnabas.client.servers import servers_of
from barnabas.client.settings import DEFAULT_BOOTSTRAP, check_settings, librdkafka_settings
from barnabas.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.kafka.protocol.messages.unregister_broker import UnregisterBrokerRequest

#: special times of ListOffsets
_TIMES = {"earliest": -2, "latest": -1}


class Admin:
    """Manages topics, settings, users, groups and offsets of one cluster. Every method waits for its answer.

    If a broker dies during a call, the call succeeds if another broker answers in time.

    Every method raises KafkaError, with the broker's code and text, if a broker rejects a request. It raises
    ClientError if no broker answers within `timeout` seconds.
    """

    def __init__(
        self, bootstrap_servers: str = DEFAULT_BOOTSTRAP, *, timeout: float = 15.0, **settings: Any
    ) -> None:
        """Create a client.

        Args:
            bootstrap_servers: addresses of brokers, `host:port,...`.
            timeout: seconds for each call, including all attempts.
            settings: settings of librdkafka, with underscores for dots, as for every other client.

        Raises:
            SettingError: librdkafka rejects a setting.
            ClientError: an address is not HOST:PORT.
        """
        if settings:
            check_settings(bootstrap_servers, settings)
        self._servers = servers_of(bootstrap_servers, librdkafka_settings(bootstrap_servers, settings))
        self._timeout = timeout
        self._brokers = Brokers(self._servers, timeout)

    def close(self) -> None:
        """Close the connections. The next call opens new ones."""
        self._brokers.close()

    # -- the cluster

    def cluster(self) -> ClusterDescription:
        """Return the brokers and the controller."""
        return described(self._brokers.ask_any(DescribeClusterRequest()))

    def unregister_broker(self, broker: BrokerId) -> None:
        """Remove the registration of a broker that will not come back, so that it gets no new replicas."""

        def unregister(connection: BrokerConnection) -> None:
            answer = connection.ask(UnregisterBrokerRequest(broker_id=broker))
            check(answer.error_code, f"broker {broker}", answer.error_message)

        self._brokers.ask_controller(repeatable(unregister, ErrorCode.BROKER_ID_NOT_REGISTERED))

    def features(self) -> list[features.Feature]:
        """Return the features that the brokers support, with the levels that the cluster uses."""
        return features.list_features(self._brokers)

    def update_features(self, levels: Mapping[str, int], *, is_downgrade: bool = False) -> None:
        """Set the levels of features for the whole cluster, all of them or none.

        Args:
            levels: the new level of each feature; 0 turns it off.
            is_downgrade: whether the new levels are lower than the current ones.

        Raises:
            KafkaError: INVALID_UPDATE_VERSION, a broker does not support a level or is away, or
                `is_downgrade` contradicts the direction of a change.
        """
        features.update_features(self._brokers, levels, is_downgrade=is_downgrade)

    # -- topics

    def topics(self, *, internal: bool = False) -> list[str]:
        """Return the names of all topics, sorted.

        If `internal` is false, names that begin with two underscores, such as `__consumer_offsets`, are left
        out.
        """
        names = topic_calls.list_topics(self._brokers)
        return [name for name in names if internal or not name.startswith("__")]

    def describe_topics(self, names: Sequence[str]) -> list[TopicDescription]:
        """Return topics and their partitions with leader, replicas and ISR, in the order of `names`.

        Raises KafkaError if one of the topics does not exist.
        """
        return topic_calls.describe_topics(self._brokers, names) if names else []

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Create a topic. The broker's defaults replace arguments that are None.

        Raises KafkaError (TOPIC_ALREADY_EXISTS) if there is a topic with this name.

        Args:
            partitions: number of partitions.
            configs: settings of the topic, by name.
            assignments: for each partition its replicas (broker ids), the preferred leader first; used
                instead of `partitions` and `replication_factor`.
            validate_only: only check whether the topic could be created.
        """
        topic = topic_calls.new_topic(name, partitions, replication_factor, configs, assignments)
        topic_calls.create_topic(self._brokers, topic, validate_only=validate_only)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records.

        Raises KafkaError (UNKNOWN_TOPIC_OR_PARTITION) if there is no such topic.
        """
        topic_calls.delete_topic(self._brokers, name)

    def add_partitions(self, name: str, total: int) -> None:
        """Raise the number of a topic's partitions to `total`.

        Raises KafkaError (INVALID_PARTITIONS) if the topic has `total` partitions or more already.
        """
        topic_calls.add_partitions(self._brokers, name, total)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete each partition's records below its offset in `before`; -1 deletes all records.

        Return each partition's new log start offset. If replicas differ, it is the lowest one of the live
        replicas.
        """
        offsets = {TopicPartition(*partition): offset for partition, offset in before.items()}
        return offset_calls.delete_records(self._brokers, offsets)

    def sizes(self, topics: Iterable[TopicDescription]) -> dict[TopicPartition, int]:
        """Return the size of each partition on its leader's disk, in bytes.

        Partitions without a leader, and those whose leader does not answer, are left out.
        """
        leading = [
            (partition.leader, TopicPartition(topic.name, partition.partition))
            for topic in topics
            for partition in topic.partitions
            if partition.leader is not None
        ]
        return {partition: size for (_, partition), size in replica_sizes(self._brokers, leading).items()}

    def offsets(
        self, partitions: Iterable[TopicPartition], spec: str | int, *, skip_failed: bool = False
    ) -> dict[TopicPartition, int]:
        """Return one offset of each partition.

        Args:
            spec: "earliest", "latest" (the high watermark), or a time in ms since 1970. A time gives
                the offset of the first record at this time or later; -1 if there is none.
            skip_failed: leave out partitions that do not exist or have no leader, and those whose leader
                rejects the request or does not answer. If false, such a partition raises an error.

        Raises:
            ClientError: `spec` is another text; or a broker does not answer.
            KafkaError: a leader rejects the request.
        """
        time = spec if isinstance(spec, int) else _TIMES.get(spec)
        if time is None:
            raise ClientError(f"{spec!r} is no offset: use {' or '.join(_TIMES)}, or a time in ms since 1970")
        times = {TopicPartition(*partition): time for partition in partitions}
        return offset_calls.list_offsets(self._brokers, times, skip_failed=skip_failed)

    # -- settings

    def configs(self, kind: str, name: str) -> list[ConfigValue]:
        """Return every setting of a resource, with the source of its value.

        Args:
            kind: "topic", "group", "client metrics" or "broker".
            name: name of the resource. For a broker, its id, or "" for the defaults of all brokers (KIP-226).
        """
        return config_calls.describe_settings(self._brokers, kind, name)

    def alter_configs(
        self,
        kind: str,
        name: str,
        *,
        set: Mapping[str, str] | None = None,  # the operation's name in Kafka
        delete: Iterable[str] = (),
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
    ) -> None:
        """Change some settings of a resource, and leave its other settings unchanged.

        Args:
            kind: "topic", "group", "client metrics" or "broker".
            name: name of the resource. For a broker, its id, or "" for the defaults of all brokers.
            set: new values.
            delete: settings to reset to their defaults.
            append: values to add to settings that are lists.
            subtract: values to remove from settings that are lists.
        """
        changes: list[tuple[str, str, str | None]] = [
            *(("set", key, value) for key, value in (set or {}).items()),
            *(("delete", key, None) for key in delete),
            *(("append", key, value) for key, value in (append or {}).items()),
            *(("subtract", key, value) for key, value in (subtract or {}).items()),
        ]
        config_calls.alter_settings(self._brokers, kind, name, changes)

    # -- users

    def users(self) -> dict[str, dict[str, int]]:
        """Return the users with SCRAM credentials: for each user, the iterations by mechanism."""
        return passwords.list_users(self._brokers)

    def set_password(self, user: str, password: str, *, iterations: int = 4096) -> None:
        """Set a user's SCRAM password. This process sends only the salted password.

        More `iterations` make each login slower, and so also each guess of a password.
        """
        passwords.set_password(self._brokers, user, password, iterations)

    def delete_user(self, user: str) -> None:
        """Delete a user's SCRAM passwords. Raises KafkaError if the user has none."""
        passwords.delete_user(self._brokers, user)

    # -- groups

    def groups(self) -> list[GroupListing]:
        """Return every consumer group and share group with its state and type.

        Groups of other programs than consumers, such as Kafka Connect's workers, are left out.
        """
        return consumer_groups.list_groups(self._brokers)

    def describe_group(self, group: str) -> GroupDescription:
        """Return a group's state, assignor, and members with their assignments.

        The state of a group that does not exist is Dead.
        """
        return self._brokers.ask_coordinator(
            group, lambda connection, broker: consumer_groups.describe_group(connection, broker, group)
        )

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """Return the group's committed offset in each partition: the next offset that the group will read.

        Partitions without a committed offset are left out.
        """
        return self._brokers.ask_coordinator(
            group, lambda connection, _: consumer_groups.committed_offsets(connection, group)
        )

    def set_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a consumer group, which must have no members."""
        self._brokers.ask_coordinator(
            group, lambda connection, _: consumer_groups.commit_offsets(connection, group, offsets)
        )

    def share_offsets(self, group: str) -> dict[TopicPartition, share_groups.ShareOffset]:
        """Return a share group's start offset and lag in each partition for which the group has a state."""
        return self._brokers.ask_coordinator(
            group, lambda connection, _: share_groups.start_offsets(connection, group)
        )

    def share_records(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, share_groups.InFlight] | None:
        """Return the ranges of a share group's records in flight, by partition; None on Apache Kafka.

        A range has the offsets, the delivery state and the member that has acquired the records. Partitions
        that no member reads, or whose leader does not answer, are left out.
        """
        return share_groups.records_in_flight(self._brokers, group, partitions)

    def set_share_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the start offsets of a share group, which must have no members."""
        self._brokers.ask_coordinator(
            group, lambda connection, _: share_groups.set_start_offsets(connection, group, offsets)
        )

    def delete_group(self, group: str) -> None:
        """Delete a group, which must have no members, and its offsets.

        Raises KafkaError: NON_EMPTY_GROUP if the group has members, GROUP_ID_NOT_FOUND if there is no group.
        """

        def delete(connection: BrokerConnection, _: BrokerId) -> None:
            consumer_groups.delete_group(connection, group)

        self._brokers.ask_coordinator(group, repeatable(delete, ErrorCode.GROUP_ID_NOT_FOUND))
