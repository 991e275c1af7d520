"""Administering a cluster: `confluent_kafka.admin.AdminClient` with plain answers instead of futures."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import admin as confluent_admin

from barnabas.client import consumer_groups
from barnabas.client.admin_types import (
    ClusterDescription,
    ConfigValue,
    GroupDescription,
    GroupListing,
    Node,
    PartitionDescription,
    TopicDescription,
)
from barnabas.client.asking import ask
from barnabas.client.broker_calls import (
    alter_settings,
    describe_settings,
    replica_sizes,
)
from barnabas.client.connection import Connection
from barnabas.client.coordinators import Coordinators
from barnabas.client.errors import ClientError, translate
from barnabas.client.reach import explain_silence
from barnabas.client.servers import servers_of
from barnabas.client.settings import DEFAULT_BOOTSTRAP, create_client, librdkafka_settings
from barnabas.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.types import BrokerId, TopicPartition

T = TypeVar("T")

_RESOURCES = {
    "topic": confluent_admin.ResourceType.TOPIC,
    "broker": confluent_admin.ResourceType.BROKER,
    "group": confluent_admin.ResourceType.GROUP,
}
_DEFAULT = 5
_SOURCES = {
    1: "topic",
    2: "dynamic broker",
    3: "dynamic default broker",
    4: "static broker",
    5: "default",
    6: "dynamic broker logger",
    7: "client metrics",
    8: "group",
}

_SCRAM = (confluent_admin.ScramMechanism.SCRAM_SHA_256, confluent_admin.ScramMechanism.SCRAM_SHA_512)

_OPERATIONS = {
    "set": confluent_admin.AlterConfigOpType.SET,
    "delete": confluent_admin.AlterConfigOpType.DELETE,
    "append": confluent_admin.AlterConfigOpType.APPEND,
    "subtract": confluent_admin.AlterConfigOpType.SUBTRACT,
}


class Admin:
    """Topics, settings, groups and offsets of one cluster. Every method waits for its answer.

    Raises (every method):
        KafkaError: the broker refused, with its code and words.
        ClientError: no broker answers within `timeout` seconds.
    """

    def __init__(
        self, bootstrap_servers: str = DEFAULT_BOOTSTRAP, *, timeout: float = 15.0, **settings: Any
    ) -> None:
        self._servers = servers_of(bootstrap_servers, librdkafka_settings(bootstrap_servers, settings))
        self._timeout = timeout
        self._admin = create_client(confluent_admin.AdminClient, bootstrap_servers, settings)
        self._coordinators = Coordinators(self._servers, timeout)

    # -- the cluster

    def cluster(self) -> ClusterDescription:
        """The brokers and the controller."""
        answer = self._wait(self._admin.describe_cluster(request_timeout=self._timeout))
        nodes = tuple(Node(node.id, node.host, node.port, node.rack) for node in answer.nodes)
        controller = answer.controller.id if answer.controller is not None else None
        return ClusterDescription(answer.cluster_id, controller, tuple(sorted(nodes)))

    # -- topics

    def topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics; internal ones (`__consumer_offsets`) only when asked for."""
        names = sorted(self._metadata().topics)
        return [name for name in names if internal or not name.startswith("__")]

    def describe_topics(self, names: Sequence[str]) -> list[TopicDescription]:
        """Partitions with leader, replicas and ISR, in the order of `names`."""
        if not names:
            return []
        futures = self._admin.describe_topics(
            confluent_kafka.TopicCollection(list(names)), request_timeout=self._timeout
        )
        described = []
        for name in names:
            answer = self._wait(futures[name], name)
            partitions = tuple(
                PartitionDescription(
                    partition.id,
                    partition.leader.id if partition.leader is not None else None,
                    tuple(node.id for node in partition.replicas),
                    tuple(node.id for node in partition.isr),
                )
                for partition in answer.partitions
            )
            described.append(
                TopicDescription(name, _topic_id(answer.topic_id), answer.is_internal, partitions)
            )
        return described

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
        """Create a topic; what is not given is the broker's default.

        Args:
            assignments: for each partition its replicas (broker ids), the preferred leader first; instead of
                `partitions` and `replication_factor`.
        """
        options: dict[str, Any] = {}
        if assignments is not None:
            options["replica_assignment"] = [list(replicas) for replicas in assignments]
            partitions = len(assignments)
        else:
            options["replication_factor"] = -1 if replication_factor is None else replication_factor
        topic = confluent_admin.NewTopic(
            name,
            num_partitions=-1 if partitions is None else partitions,
            config=dict(configs or {}),
            **options,
        )
        futures = self._admin.create_topics(
            [topic],
            operation_timeout=self._timeout,
            request_timeout=self._timeout,
            validate_only=validate_only,
        )
        self._wait(futures[name], name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records."""
        futures = self._admin.delete_topics(
            [name], operation_timeout=self._timeout, request_timeout=self._timeout
        )
        self._wait(futures[name], name)

    def add_partitions(self, name: str, total: int) -> None:
        """Raise the number of a topic's partitions to `total`."""
        futures = self._admin.create_partitions(
            [confluent_admin.NewPartitions(name, total)],
            operation_timeout=self._timeout,
            request_timeout=self._timeout,
        )
        self._wait(futures[name], name)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records below these offsets (-1: all); the new log start offsets."""
        asked = [confluent_kafka.TopicPartition(*place, offset) for place, offset in before.items()]
        futures = self._admin.delete_records(asked, request_timeout=self._timeout)
        return {
            TopicPartition(place.topic, place.partition): self._wait(future).low_watermark
            for place, future in futures.items()
        }

    def sizes(self, topics: Iterable[TopicDescription]) -> dict[TopicPartition, int]:
        """The bytes on disk of each partition at its leader; without those whose leader does not tell."""
        leaders = {
            TopicPartition(topic.name, partition.partition): partition.leader
            for topic in topics
            for partition in topic.partitions
            if partition.leader is not None
        }
        nodes = [node for node in self.cluster().nodes if node.id in {*leaders.values()}]
        sizes = replica_sizes(nodes, leaders, self._timeout, self._servers.security)
        return {place: sizes[leader, place] for place, leader in leaders.items() if (leader, place) in sizes}

    def offsets(
        self, partitions: Iterable[TopicPartition], spec: str | int, *, skip_failed: bool = False
    ) -> dict[TopicPartition, int]:
        """Offsets by "earliest", "latest" (the high watermark) or the first record at a time (ms since 1970).

        A partition without a record at or after the time has offset -1. With `skip_failed` a partition whose
        broker does not tell is left out.
        """
        if isinstance(spec, int):
            chosen = confluent_admin.OffsetSpec.for_timestamp(spec)
        elif spec == "earliest":
            chosen = confluent_admin.OffsetSpec.earliest()
        else:
            chosen = confluent_admin.OffsetSpec.latest()
        asked = {confluent_kafka.TopicPartition(*place): chosen for place in partitions}
        if not asked:
            return {}
        futures = self._admin.list_offsets(asked, request_timeout=self._timeout)
        offsets = {}
        for place, future in futures.items():
            if skip_failed and future.exception() is not None:
                continue
            offsets[TopicPartition(place.topic, place.partition)] = self._wait(future).offset
        return offsets

    # -- settings

    def configs(self, kind: str, name: str) -> list[ConfigValue]:
        """Every setting of a "topic", "broker", "group" or "client metrics", and where its value is from.

        A broker without a name stands for all: only the settings that have a cluster-wide default (KIP-226).
        """
        if kind not in _RESOURCES or (kind == "broker" and not name):
            return sorted(
                (
                    ConfigValue(
                        entry.name,
                        entry.value,
                        _SOURCES.get(entry.config_source, "unknown"),
                        entry.config_source == _DEFAULT,
                        entry.read_only,
                        entry.is_sensitive,
                        tuple((synonym.name, synonym.value) for synonym in entry.synonyms),
                    )
                    for entry in describe_settings(self._servers, self._timeout, kind, name)
                ),
                key=lambda value: value.name,
            )
        if kind == "broker":
            self._require_node(name)
        resource = confluent_admin.ConfigResource(_RESOURCES[kind], name)
        futures = self._admin.describe_configs([resource], request_timeout=self._timeout)
        answer = self._wait(futures[resource], name if kind == "topic" else f"{kind} {name}")
        return sorted(
            (
                ConfigValue(
                    entry.name,
                    entry.value,
                    _SOURCES.get(int(entry.source), "unknown"),
                    entry.is_default,
                    entry.is_read_only,
                    entry.is_sensitive,
                    tuple((synonym.name, synonym.value) for synonym in entry.synonyms.values()),
                )
                for entry in answer.values()
            ),
            key=lambda value: value.name,
        )

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
        """Change some settings: set, put back to the default, or add to and take from a list.

        A broker without a name stands for all: the cluster-wide default is changed.
        """
        changes: list[tuple[str, str, str | None]] = [
            *(("set", key, value) for key, value in (set or {}).items()),
            *(("delete", key, None) for key in delete),
            *(("append", key, value) for key, value in (append or {}).items()),
            *(("subtract", key, value) for key, value in (subtract or {}).items()),
        ]
        if kind not in _RESOURCES or (kind == "broker" and not name):
            alter_settings(self._servers, self._timeout, kind, name, changes)
            return
        if kind == "broker":
            self._require_node(name)
        resource = confluent_admin.ConfigResource(
            _RESOURCES[kind],
            name,
            incremental_configs=[
                confluent_admin.ConfigEntry(key, value, incremental_operation=_OPERATIONS[operation])
                for operation, key, value in changes
            ],
        )
        futures = self._admin.incremental_alter_configs([resource], request_timeout=self._timeout)
        self._wait(futures[resource], name if kind == "topic" else f"{kind} {name}")

    # -- users

    def users(self) -> dict[str, dict[str, int]]:
        """Everyone who can log in: the iterations of their SCRAM credentials, by mechanism."""
        described = self._wait(self._admin.describe_user_scram_credentials(request_timeout=self._timeout))
        return {
            user: {
                info.mechanism.name.replace("_", "-"): info.iterations
                for info in sorted(answer.scram_credential_infos, key=lambda info: info.mechanism.value)
            }
            for user, answer in sorted(described.items())
        }

    def set_password(self, user: str, password: str, *, iterations: int = 4096) -> None:
        """Let a user log in by a password; an earlier one is replaced. It leaves this process salted only."""
        changes = [
            confluent_admin.UserScramCredentialUpsertion(
                user, confluent_admin.ScramCredentialInfo(mechanism, iterations), password.encode()
            )
            for mechanism in _SCRAM
        ]
        self._alter_user(user, changes)

    def delete_user(self, user: str) -> None:
        """Take a user's passwords away."""
        futures = self._admin.describe_user_scram_credentials([user], request_timeout=self._timeout)
        found = self._wait(futures[user], user)
        changes = [
            confluent_admin.UserScramCredentialDeletion(user, info.mechanism)
            for info in found.scram_credential_infos
        ]
        self._alter_user(user, changes)

    def _alter_user(self, user: str, changes: Sequence[Any]) -> None:
        futures = self._admin.alter_user_scram_credentials(changes, request_timeout=self._timeout)
        self._wait(futures[user], user)

    # -- groups

    def groups(self) -> list[GroupListing]:
        """Every consumer group with its state and type."""
        answer = self._wait(self._admin.list_consumer_groups(request_timeout=self._timeout))
        for error in answer.errors:
            raise translate(error)
        return sorted(
            GroupListing(group.group_id, _state(group.state), group.type.name.lower())
            for group in answer.valid
        )

    def describe_group(self, group: str) -> GroupDescription:
        """State, assignor and members with what they are assigned; a group that is not there is Dead."""
        return self._coordinators.ask(
            group, lambda connection, broker: consumer_groups.describe_group(connection, broker, group)
        )

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """What the group has committed: by partition the next offset it will read."""
        return self._coordinators.ask(
            group, lambda connection, _: consumer_groups.committed_offsets(connection, group)
        )

    def set_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets in the group's name; the group must have no members."""
        self._coordinators.ask(
            group, lambda connection, _: consumer_groups.commit_offsets(connection, group, offsets)
        )

    def delete_group(self, group: str) -> None:
        """Delete a group and its offsets; it must have no members."""
        is_answer_lost = False

        def delete(connection: Connection, _: BrokerId) -> None:
            nonlocal is_answer_lost
            try:
                consumer_groups.delete_group(connection, group)
            except ClientError:
                is_answer_lost = True
                raise
            except KafkaError as error:
                if not is_answer_lost or error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                    raise  # else the request before has deleted it

        self._coordinators.ask(group, delete)

    # -- within

    def _require_node(self, broker: str) -> None:
        """librdkafka would wait for a broker that the cluster does not have until the time is up."""
        known = [str(node.id) for node in self.cluster().nodes]
        if broker not in known:
            raise ClientError(f"the cluster has no broker {broker}; its brokers are {', '.join(known)}")

    def _metadata(self) -> Any:
        try:
            return ask(partial(self._admin.list_topics, timeout=self._timeout))
        except confluent_kafka.KafkaException as error:
            raise self._translate(error) from None

    def _wait(self, future: concurrent.futures.Future[Any], about: str = "") -> Any:
        """The answer; `about` names what it concerns, for a refusal that does not."""
        try:
            return future.result()
        except confluent_kafka.KafkaException as error:
            translated = self._translate(error)
            code = getattr(translated, "code", None)
            if about and code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise KafkaError(code, f"there is no topic {about}") from None
            if about and isinstance(translated, KafkaError) and about not in translated.message:
                translated = KafkaError(translated.code, f"{about}: {translated.message}")
            raise translated from None

    def _translate(self, error: confluent_kafka.KafkaException) -> BarnabasError:
        codes = confluent_kafka.KafkaError
        if error.args[0].code() in (codes._TRANSPORT, codes._TIMED_OUT, codes._ALL_BROKERS_DOWN):
            return explain_silence(self._servers, self._timeout)
        return translate(error)


def _topic_id(uuid: confluent_kafka.Uuid) -> str:
    """Kafka's spelling of a topic id, which is URL-safe base64; librdkafka's is not."""
    return str(uuid).replace("+", "-").replace("/", "_")


def _state(state: Any) -> str:
    """Kafka's spelling: Stable, PreparingRebalance, Empty ..."""
    # librdkafka says REBALANCING where Kafka says Rebalance.
    return "".join(word.capitalize() for word in state.name.split("_")).replace("Rebalancing", "Rebalance")
