"""Calls go to the broker that can answer them, and to the next one if that broker changes or dies."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.client import brokers, connection_pool
from barnabas.client.admin import Admin
from barnabas.client.brokers import Brokers, check
from barnabas.client.connection import UnservedError
from barnabas.client.errors import AuthenticationError, ClientError
from barnabas.client.repeated import Repeated
from barnabas.client.servers import Servers
from barnabas.kafka.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from barnabas.kafka.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from barnabas.kafka.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

FIRST, SECOND = ("one", 1), ("two", 2)


class FakeCluster:
    """Two brokers. `coordinator` coordinates every group. The brokers in `silent` do not answer."""

    def __init__(self) -> None:
        self.coordinator = 1
        self.refuses = ErrorCode.NONE
        self.silent: set[int] = set()
        #: those that have ended the connections that were idle
        self.ended: set[int] = set()
        self.opened: list[int] = []
        self.closed = 0
        self.controller = 1
        #: how DeleteGroups and DeleteTopics are answered, one a request
        self.deletions: list[ErrorCode | Exception] = []
        #: the leader of the only partition by the metadata, and who takes itself for it
        self.leader = 1
        self.leads = {1}
        #: requests for offsets and their responses, by broker
        self.events: list[str] = []
        #: how many groups each FindCoordinator named
        self.looked_up: list[int] = []


class FakeConnection:
    cluster: FakeCluster

    def __init__(
        self, host: str, port: int, timeout: float, *, client_id: str, security: object = None
    ) -> None:
        assert 0 < timeout <= 5
        self.client_id = client_id
        self.port = port
        self.cluster = self.cluster  # whichever test's it is when this is closed
        self.cluster.opened.append(port)
        self._require_answer()

    def _require_answer(self) -> None:
        if self.port in self.cluster.silent:
            raise ClientError("the broker does not answer")

    def is_usable(self) -> bool:
        return self.port not in self.cluster.ended

    def wait_for(self, timeout: float) -> None:
        assert 0 < timeout <= 60

    def close(self) -> None:
        self.cluster.closed += 1

    def send(self, request: Any, *, max_version: int | None = None) -> None:
        self._sent = request.request if isinstance(request, Repeated) else request
        self.cluster.events.append(f"send {self.port}")

    def receive(self) -> Any:
        self.cluster.events.append(f"receive {self.port}")
        return self.ask(self._sent)

    def ask(self, request: Any, *, max_version: int | None = None) -> Any:
        self._require_answer()
        if isinstance(request, MetadataRequest):
            led = MetadataResponsePartition(partition_index=0, leader_id=self.cluster.leader)
            return MetadataResponse(
                brokers=[
                    MetadataResponseBroker(node_id=port, host=host, port=port)
                    for host, port in (FIRST, SECOND)
                ],
                controller_id=self.cluster.controller,
                topics=[MetadataResponseTopic(name="t", partitions=[led])],
            )
        if isinstance(request, ListOffsetsRequest):
            return self._offsets()
        if isinstance(request, DeleteTopicsRequest):
            answer = self.cluster.deletions.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return DeleteTopicsResponse(responses=[DeletableTopicResult(name="t", error_code=answer)])
        if isinstance(request, DeleteGroupsRequest):
            answer = self.cluster.deletions.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g", error_code=answer)])
        assert isinstance(request, FindCoordinatorRequest)
        number = self.cluster.coordinator
        host, port = (FIRST, SECOND)[number - 1]
        self.cluster.looked_up.append(len(request.coordinator_keys))
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=number, host=host, port=port, error_code=self.cluster.refuses)
                for key in request.coordinator_keys
            ]
        )

    def _offsets(self) -> ListOffsetsResponse:
        code = ErrorCode.NONE if self.port in self.cluster.leads else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if code:
            self.cluster.leader = 2  # the next metadata tell of the new one
        told = ListOffsetsPartitionResponse(partition_index=0, error_code=code, offset=10 * self.port)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[told])])


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    monkeypatch.setattr(FakeConnection, "cluster", FakeCluster(), raising=False)
    monkeypatch.setattr(connection_pool, "BrokerConnection", FakeConnection)
    monkeypatch.setattr(brokers, "_RETRY_S", 0.001)
    monkeypatch.setattr(brokers, "explain_silence", lambda servers, timeout: ClientError("explained"))
    return FakeConnection.cluster


def calls(timeout: float = 60.0) -> Brokers:
    return Brokers(Servers("one:1"), timeout)


def who(connection: Any, broker: int) -> int:
    connection._require_answer()
    return broker


def test_the_coordinator_is_asked_and_its_connection_kept(cluster: FakeCluster) -> None:
    asked = calls()
    cluster.coordinator = 2
    assert [asked.ask_coordinator("g", who) for _ in range(3)] == [2, 2, 2]
    assert cluster.opened == [1, 2]
    del asked
    assert cluster.closed == 2


def test_a_call_after_closing_connects_again(cluster: FakeCluster) -> None:
    asked = calls()
    asked.ask_coordinator("g", who)
    asked.close()
    assert cluster.closed == 1
    assert asked.ask_coordinator("g", who) == 1
    assert cluster.opened == [1, 1]


@pytest.mark.parametrize(
    ("settings", "client_id"), [({}, "barnabas"), ({"client.id": "nightly-job"}, "nightly-job")]
)
def test_the_client_id_of_the_settings_is_told(
    cluster: FakeCluster, settings: dict[str, str], client_id: str
) -> None:
    asked = Brokers(Servers("one:1", settings), 60.0)
    assert asked.ask_coordinator("g", lambda connection, _: connection.client_id) == client_id


def test_another_broker_is_asked_when_the_coordinator_and_entry_has_died(cluster: FakeCluster) -> None:
    asked = calls()
    assert asked.ask_coordinator("g", who) == 1
    cluster.silent, cluster.coordinator = {1}, 2
    assert asked.ask_coordinator("g", who) == 2
    opened = len(cluster.opened)
    assert asked.ask_coordinator("g", who) == 2
    assert len(cluster.opened) == opened, "the dead one is not tried first again"


@pytest.mark.parametrize("code", brokers._PASSING)
def test_a_call_is_made_again_when_the_broker_does_not_coordinate_the_group_now(
    cluster: FakeCluster, code: ErrorCode
) -> None:
    def call(connection: Any, broker: int) -> int:
        if broker == 1:
            cluster.coordinator = 2
            check(code, "g")
        return broker

    assert calls().ask_coordinator("g", call) == 2


def test_what_the_coordinator_refuses_is_raised_at_once(cluster: FakeCluster) -> None:
    made = []

    def call(connection: Any, broker: int) -> None:
        made.append(broker)
        check(ErrorCode.GROUP_AUTHORIZATION_FAILED, "g")

    with pytest.raises(KafkaError, match="g: Not authorised"):
        calls().ask_coordinator("g", call)
    assert made == [1]


def test_a_refusal_to_name_the_coordinator_is_raised_at_once(cluster: FakeCluster) -> None:
    cluster.refuses = ErrorCode.GROUP_AUTHORIZATION_FAILED
    with pytest.raises(KafkaError, match="the coordinator of g") as raised:
        calls().ask_coordinator("g", who)
    assert raised.value.code == ErrorCode.GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize("failure", [UnservedError("no such API"), AuthenticationError("who are you")])
def test_what_no_other_try_can_mend_is_raised_at_once(cluster: FakeCluster, failure: ClientError) -> None:
    made = []

    def call(connection: Any, broker: int) -> None:
        made.append(broker)
        raise failure

    with pytest.raises(type(failure), match=str(failure)):
        calls().ask_coordinator("g", call)
    assert made == [1]


def test_a_coordinator_that_never_answers_is_explained_when_the_time_is_up(cluster: FakeCluster) -> None:
    def call(connection: Any, broker: int) -> None:
        raise ClientError("it does not answer")

    with pytest.raises(ClientError, match="explained"):
        calls(timeout=0.05).ask_coordinator("g", call)


def test_a_coordinator_that_never_loads_is_named_when_the_time_is_up(cluster: FakeCluster) -> None:
    def call(connection: Any, broker: int) -> None:
        check(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "g")

    with pytest.raises(KafkaError) as raised:
        calls(timeout=0.05).ask_coordinator("g", call)
    assert raised.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_group_that_a_lost_answer_told_of_is_deleted_when_it_is_not_there_any_more(
    cluster: FakeCluster,
) -> None:
    cluster.deletions = [ClientError("lost"), ErrorCode.GROUP_ID_NOT_FOUND]
    Admin("one:1").delete_group("g")
    assert cluster.deletions == []


def test_to_delete_a_group_that_is_not_there_is_refused(cluster: FakeCluster) -> None:
    cluster.deletions = [ErrorCode.GROUP_ID_NOT_FOUND]
    with pytest.raises(KafkaError) as raised:
        Admin("one:1").delete_group("g")
    assert raised.value.code == ErrorCode.GROUP_ID_NOT_FOUND


def test_the_next_controller_is_asked_when_the_controller_has_died(cluster: FakeCluster) -> None:
    asked = calls()
    assert asked.ask_controller(lambda connection: connection.port) == 1
    cluster.silent, cluster.controller = {1}, 2
    assert asked.ask_controller(lambda connection: connection.port) == 2


def test_a_call_waits_for_the_election_of_a_controller(cluster: FakeCluster) -> None:
    cluster.controller = -1
    tries = []

    def metadata(topics: Any, deadline: float) -> Any:
        tries.append(deadline)
        if len(tries) == 3:
            cluster.controller = 2
        return Brokers.metadata(asked, topics, deadline)

    asked = calls()
    asked.metadata = metadata  # type: ignore[method-assign]
    assert asked.ask_controller(lambda connection: connection.port) == 2
    assert len(tries) == 3


def test_a_cluster_that_elects_no_controller_is_told_of_when_the_time_is_up(cluster: FakeCluster) -> None:
    cluster.controller = -1
    with pytest.raises(KafkaError, match="no controller"):
        calls(timeout=0.05).ask_controller(lambda connection: connection.port)


def test_a_broker_that_the_cluster_does_not_have_is_named_at_once(cluster: FakeCluster) -> None:
    with pytest.raises(ClientError, match="the cluster has no broker 7; its brokers are 1, 2"):
        calls().ask_broker(7, lambda connection: connection)


def test_a_topic_that_a_lost_answer_told_of_is_deleted_when_it_is_not_there_any_more(
    cluster: FakeCluster,
) -> None:
    cluster.deletions = [ClientError("lost"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    Admin("one:1").delete_topic("t")
    assert cluster.deletions == []


def test_to_delete_a_topic_that_is_not_there_is_refused(cluster: FakeCluster) -> None:
    cluster.deletions = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    with pytest.raises(KafkaError, match="there is no topic t"):
        Admin("one:1").delete_topic("t")


def test_the_new_leader_is_asked_for_offsets_when_the_old_one_leads_no_more(cluster: FakeCluster) -> None:
    cluster.leads = {2}
    assert Admin("one:1").offsets([TopicPartition("t", 0)], "latest") == {TopicPartition("t", 0): 20}


def test_a_connection_that_ended_while_it_was_idle_is_no_answer_that_was_lost(cluster: FakeCluster) -> None:
    admin = Admin("one:1")
    admin.offsets([TopicPartition("t", 0)], "latest")
    cluster.ended = {1}
    cluster.deletions = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    with pytest.raises(KafkaError, match="there is no topic t"):
        admin.delete_topic("t")
    assert cluster.opened == [1] * 3, (
        "the first, one for the metadata and one for the topic, which end at once"
    )


def test_the_next_leader_is_asked_for_offsets_when_the_leader_has_died(cluster: FakeCluster) -> None:
    admin = Admin("one:1,two:2")
    assert admin.offsets([TopicPartition("t", 0)], "latest") == {TopicPartition("t", 0): 10}
    cluster.silent, cluster.leader, cluster.leads = {1}, 2, {2}
    assert admin.offsets([TopicPartition("t", 0)], "latest") == {TopicPartition("t", 0): 20}


def test_partitions_whose_leader_does_not_tell_are_left_out_on_request(cluster: FakeCluster) -> None:
    cluster.leads = set()
    assert Admin("one:1").offsets([TopicPartition("t", 0)], "latest", skip_failed=True) == {}


def test_offsets_of_no_partitions_ask_nobody(cluster: FakeCluster) -> None:
    assert Admin("one:1").offsets([], "latest") == {}
    assert cluster.opened == []


def test_each_broker_gets_its_request_before_the_first_response_is_awaited(cluster: FakeCluster) -> None:
    asked = calls()
    cluster.leads = {1, 2}
    request = ListOffsetsRequest()
    found = asked.ask_each({1: request, 2: request})
    assert cluster.events == ["send 1", "send 2", "receive 1", "receive 2"]
    assert [response.topics[0].partitions[0].offset for response in found.responses.values()] == [10, 20]
    assert found.failures == {}


def test_a_broker_that_hangs_costs_the_answers_of_no_other(cluster: FakeCluster) -> None:
    asked = calls()
    asked.ask(2, ListOffsetsRequest())
    cluster.silent = {2}
    found = asked.ask_each({2: ListOffsetsRequest(), 1: ListOffsetsRequest()})
    assert list(found.responses) == [1]
    assert "does not answer" in str(found.failures[2])
    with pytest.raises(ClientError, match="does not answer"):
        asked.ask(2, ListOffsetsRequest())


def test_every_live_broker_is_asked(cluster: FakeCluster) -> None:
    assert list(calls().ask_every(ListOffsetsRequest()).responses) == [1, 2]


def test_a_broker_of_an_unknown_id_is_asked_nothing(cluster: FakeCluster) -> None:
    with pytest.raises(ClientError, match="the cluster has no broker 7; its brokers are 1, 2"):
        calls().ask(7, ListOffsetsRequest())


def test_a_hundred_groups_are_looked_up_in_one_request(cluster: FakeCluster) -> None:
    asked = calls()
    groups = [f"group-{number}" for number in range(150)]
    cluster.coordinator = 2
    assert asked.coordinators(groups) == dict.fromkeys(groups, 2)
    assert cluster.looked_up == [100, 50]


def test_a_group_whose_coordinator_is_not_known_is_left_out(cluster: FakeCluster) -> None:
    cluster.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert calls().coordinators(["g"]) == {}


def test_once_asked_no_broker_is_asked_again(cluster: FakeCluster) -> None:
    cluster.silent = {1}
    with pytest.raises(ClientError, match="does not answer"):
        calls().ask_once(MetadataRequest())
    assert cluster.opened == [1]


def test_a_request_that_waits_is_abandoned_with_its_connection(cluster: FakeCluster) -> None:
    asked = calls()
    asked.send(1, ListOffsetsRequest()).abandon()
    assert cluster.closed == 1
    asked.ask(1, ListOffsetsRequest())
    assert cluster.opened == [1, 1], "the abandoned one is not used again"


def test_connections_of_threads_that_ask_together_are_kept(cluster: FakeCluster) -> None:
    asked = calls()
    asked.ask(1, ListOffsetsRequest())
    for _ in range(2):
        together = [asked.send(1, ListOffsetsRequest()) for _ in range(4)]
        for response in together:
            response.receive(time.monotonic() + 60)
    assert cluster.opened == [1] * 4
    together = [asked.send(1, ListOffsetsRequest()) for _ in range(5)]
    for response in together:
        response.receive(time.monotonic() + 60)
    assert (len(cluster.opened), cluster.closed) == (5, 1), "no more than four are kept"


def test_connections_that_ended_while_they_were_idle_are_closed_and_replaced(cluster: FakeCluster) -> None:
    asked = calls()
    for response in [asked.send(1, ListOffsetsRequest()) for _ in range(2)]:
        response.receive(time.monotonic() + 60)
    cluster.ended = {1}
    asked.ask(1, ListOffsetsRequest())
    assert (len(cluster.opened), cluster.closed) == (3, 2)
