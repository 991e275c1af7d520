"""Pairs of requests in one write: one that changes something, and one that reads the change."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.framing import RequestHeader, encode_request
from barnabas.kafka.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    alter_user_scram_credentials,
    delete_records,
    describe_client_quotas,
    incremental_alter_configs,
    offset_delete,
)
from barnabas.kafka.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.kafka.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.kafka.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from barnabas.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.kafka.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.kafka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.kafka.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.kafka.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from barnabas.kafka.protocol.messages.end_txn import EndTxnRequest
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.kafka.protocol.messages.list_groups import ListGroupsRequest
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.kafka.protocol.messages.offset_fetch import OffsetFetchRequest
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.protocol.schema import Request
from barnabas.kafka.records import Record, all_records, encode_batch

_TOPIC = 2
_EARLIEST, _LATEST = -2, -1
_GROUP, _TRANSACTION = 0, 1


class OneConnection:
    """A connection to one broker, which leads the topic and coordinates the group and the transaction."""

    def __init__(self, wire: Any) -> None:
        self._wire = wire
        self._ids = itertools.count(1000)
        described = wire(DescribeClusterRequest())
        self._brokers = sorted(broker.broker_id for broker in described.brokers)
        host, port = wire.socket.getpeername()[:2]
        (self._id,) = (b.broker_id for b in described.brokers if (b.host, b.port) == (host, port))
        self.group = self._coordinated("group", _GROUP)
        self.transactional_id = self._coordinated("transaction", _TRANSACTION)
        self.topic = self._make_topic()

    def together(self, *requests: tuple[Request, int]) -> list[Any]:
        """Send requests in one write, each in its version, and return the answers."""
        headers = [RequestHeader(r.api_key, version, next(self._ids), "pairs") for r, version in requests]
        frames = [encode_request(header, r) for header, (r, _) in zip(headers, requests, strict=True)]
        self._wire.socket.sendall(b"".join(bytes(chunk) for frame in frames for chunk in frame))
        return [self._wire.receive(header) for header in headers]

    def _make_topic(self) -> str:
        name = f"topic-{uuid.uuid4().hex[:12]}"
        (made,) = self._wire(self.creation(name), 5).topics
        assert made.error_code == 0, made
        return name

    def creation(self, name: str) -> CreateTopicsRequest:
        """Return a CreateTopics request for one partition with a replica on each broker, led by this one."""
        replicas = [self._id, *(broker for broker in self._brokers if broker != self._id)]
        assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
        wanted = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])
        return CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)

    def _coordinated(self, kind: str, key_type: int) -> str:
        deadline = time.monotonic() + 60
        while True:
            name = f"{kind}-{uuid.uuid4().hex[:12]}"
            found = self._wire(FindCoordinatorRequest(key=name, key_type=key_type), 2)
            if found.error_code == 0 and found.node_id == self._id and self._serves(name, key_type):
                return name
            assert time.monotonic() < deadline, found

    def _serves(self, name: str, key_type: int) -> bool:
        if key_type == _GROUP:
            return not self._wire(OffsetFetchRequest(group_id=name, topics=None), 7).error_code
        (state,) = self._wire(DescribeTransactionsRequest(transactional_ids=[name])).transaction_states
        return state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    # --- the pairs ---

    def commit_then_committed(self, turn: int) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=turn)
        commit = OffsetCommitRequest(
            group_id=self.group, topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[partition])]
        )
        answers = self.together((commit, 8), (OffsetFetchRequest(group_id=self.group, topics=None), 7))
        assert answers[0].topics[0].partitions[0].error_code == 0
        assert answers[1].topics[0].partitions[0].committed_offset == turn

    def offset_delete_then_committed(self, turn: int) -> None:
        self.commit_then_committed(turn)
        topic = offset_delete.OffsetDeleteRequestTopic(
            name=self.topic, partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=0)]
        )
        answers = self.together(
            (offset_delete.OffsetDeleteRequest(group_id=self.group, topics=[topic]), 0),
            (OffsetFetchRequest(group_id=self.group, topics=None), 7),
        )
        assert answers[0].topics[0].partitions[0].error_code == 0
        assert answers[1].topics == []

    def delete_group_then_list(self, turn: int) -> None:
        self.commit_then_committed(turn)
        answers = self.together((DeleteGroupsRequest(groups_names=[self.group]), 1), (ListGroupsRequest(), 4))
        assert answers[0].results[0].error_code == 0
        assert self.group not in {group.group_id for group in answers[1].groups}

    def produce_then_fetch(self, turn: int) -> None:
        answers = self.together(
            (self._produce(b"%d" % turn), 9),
            (self._produce(b"next"), 9),
            (self._list_offsets(_LATEST), 5),
            (self._fetch(), 11),
        )
        offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers[:2]]
        assert answers[2].topics[0].partitions[0].offset == offsets[1] + 1
        records = [r.value for r in all_records(answers[3].responses[0].partitions[0].records)]
        assert records[-2:] == [b"%d" % turn, b"next"]

    def delete_records_then_start(self, turn: int) -> None:
        answers = self.together((self._produce(b"%d" % turn), 9))
        end = answers[0].responses[0].partition_responses[0].base_offset + 1
        wanted = delete_records.DeleteRecordsPartition(partition_index=0, offset=end)
        deletion = delete_records.DeleteRecordsRequest(
            topics=[delete_records.DeleteRecordsTopic(name=self.topic, partitions=[wanted])],
            timeout_ms=10_000,
        )
        answers = self.together((deletion, 1), (self._list_offsets(_EARLIEST), 5))
        assert answers[0].topics[0].partitions[0].error_code == 0
        assert answers[1].topics[0].partitions[0].offset == end

    def alter_then_describe(self, turn: int) -> None:
        config = incremental_alter_configs.AlterableConfig(
            name="retention.ms", config_operation=0, value=f"{turn + 1000}"
        )
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=_TOPIC, resource_name=self.topic, configs=[config]
        )
        change = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
        answers = self.together((change, 1), (self._describe("retention.ms"), 4))
        assert answers[0].responses[0].error_code == 0
        assert [c.value for c in answers[1].results[0].configs] == [f"{turn + 1000}"]

    def replace_then_describe(self, turn: int) -> None:
        config = alter_configs.AlterableConfig(name="segment.ms", value=f"{turn + 100_000}")
        resource = alter_configs.AlterConfigsResource(
            resource_type=_TOPIC, resource_name=self.topic, configs=[config]
        )
        change = alter_configs.AlterConfigsRequest(resources=[resource])
        answers = self.together((change, 1), (self._describe("segment.ms"), 4))
        assert answers[0].responses[0].error_code == 0
        assert [c.value for c in answers[1].results[0].configs] == [f"{turn + 100_000}"]

    def create_then_produce_then_delete(self, turn: int) -> None:
        name = f"{self.topic}-{turn}"
        answers = self.together(
            (self.creation(name), 5),
            (self._metadata(name), 8),
            (self._produce(b"first", name), 9),
            (DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5),
            (self._metadata(name), 8),
        )
        assert answers[0].topics[0].error_code == 0
        assert [p.leader_id for p in answers[1].topics[0].partitions] == [self._id]
        result = answers[2].responses[0].partition_responses[0]
        assert (result.error_code, result.base_offset) == (0, 0)
        assert answers[3].responses[0].error_code == 0
        assert answers[4].topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def grow_then_metadata(self, turn: int) -> None:
        wanted = CreatePartitionsTopic(name=self.topic, count=turn + 2, assignments=None)
        answers = self.together(
            (CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000), 2), (self._metadata(self.topic), 8)
        )
        assert answers[0].results[0].error_code == 0
        assert len(answers[1].topics[0].partitions) == turn + 2

    def quota_then_describe(self, turn: int) -> None:
        entity = alter_client_quotas.EntityData(entity_type="client-id", entity_name=self.topic)
        change = alter_client_quotas.OpData(key="producer_byte_rate", value=1e9 + turn)
        entry = alter_client_quotas.EntryData(entity=[entity], ops=[change])
        asked = describe_client_quotas.ComponentData(entity_type="client-id", match_type=0, match=self.topic)
        answers = self.together(
            (alter_client_quotas.AlterClientQuotasRequest(entries=[entry]), 1),
            (describe_client_quotas.DescribeClientQuotasRequest(components=[asked]), 1),
        )
        assert answers[0].entries[0].error_code == 0
        assert [v.value for e in answers[1].entries for v in e.values] == [1e9 + turn]

    def user_then_describe(self, turn: int) -> None:
        user = f"{self.topic}-{turn}"
        made = alter_user_scram_credentials.ScramCredentialUpsertion(
            name=user, mechanism=1, iterations=4096, salt=b"s" * 16, salted_password=b"p" * 32
        )
        gone = alter_user_scram_credentials.ScramCredentialDeletion(name=user, mechanism=1)
        shown = DescribeUserScramCredentialsRequest(users=[UserName(name=user)])
        change = alter_user_scram_credentials.AlterUserScramCredentialsRequest
        answers = self.together(
            (change(upsertions=[made]), 0), (shown, 0), (change(deletions=[gone]), 0), (shown, 0)
        )
        assert [answer.results[0].error_code for answer in answers[:3]] == [0, 0, 0]
        assert answers[3].results[0].error_code == ErrorCode.RESOURCE_NOT_FOUND

    def transaction_step_by_step(self, turn: int) -> None:
        name = self.transactional_id
        shown = DescribeTransactionsRequest(transactional_ids=[name])
        begin = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        deadline = time.monotonic() + 60
        while True:  # the transaction of the turn before may still be ending
            made, state = self.together((begin, 2), (shown, 0))
            if made.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            assert time.monotonic() < deadline
        assert made.error_code == 0
        (state,) = state.transaction_states
        assert (state.producer_epoch, state.transaction_state) == (made.producer_epoch, "Empty")
        who = {"producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=made.producer_id,
            v3_and_below_producer_epoch=made.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self.topic, partitions=[0])],
        )
        answers = self.together(
            (add, 3),
            (shown, 0),
            (EndTxnRequest(transactional_id=name, committed=True, **who), 3),
            (shown, 0),
        )
        states = [answer.transaction_states[0].transaction_state for answer in (answers[1], answers[3])]
        assert answers[2].error_code == 0
        assert states[0] == "Ongoing"
        assert states[1] in ("PrepareCommit", "CompleteCommit")

    # --- requests ---

    def _produce(self, value: bytes, topic: str | None = None) -> ProduceRequest:
        records = encode_batch([Record(key=None, value=value, timestamp=1_700_000_000_000)])
        data = TopicProduceData(
            name=topic or self.topic, partition_data=[PartitionProduceData(index=0, records=records)]
        )
        return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])

    def _fetch(self) -> FetchRequest:
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        return FetchRequest(
            max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=self.topic, partitions=[wanted])]
        )

    def _list_offsets(self, timestamp: int) -> ListOffsetsRequest:
        wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        return ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=self.topic, partitions=[wanted])]
        )

    def _describe(self, setting: str) -> DescribeConfigsRequest:
        asked = DescribeConfigsResource(
            resource_type=_TOPIC, resource_name=self.topic, configuration_keys=[setting]
        )
        return DescribeConfigsRequest(resources=[asked])

    def _metadata(self, topic: str) -> MetadataRequest:
        return MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)


Pair = Callable[[OneConnection, int], None]

PAIRS: Sequence[Pair] = (
    OneConnection.commit_then_committed,
    OneConnection.offset_delete_then_committed,
    OneConnection.delete_group_then_list,
    OneConnection.produce_then_fetch,
    OneConnection.delete_records_then_start,
    OneConnection.alter_then_describe,
    OneConnection.replace_then_describe,
    OneConnection.create_then_produce_then_delete,
    OneConnection.grow_then_metadata,
    OneConnection.quota_then_describe,
    OneConnection.user_then_describe,
    OneConnection.transaction_step_by_step,
)
