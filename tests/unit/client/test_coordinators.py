"""Calls about a group go to its coordinator, and to the next one when it coordinates the group no more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.client import coordinators
from barnabas.client.admin import Admin
from barnabas.client.connection import UnservedError
from barnabas.client.coordinators import Coordinators, check
from barnabas.client.errors import AuthenticationError, ClientError
from barnabas.client.servers import Servers
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from barnabas.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker

FIRST, SECOND = ("one", 1), ("two", 2)


class FakeCluster:
    """Two brokers. `coordinator` coordinates every group; `silent` ones do not answer."""

    def __init__(self) -> None:
        self.coordinator = 1
        self.refuses = ErrorCode.NONE
        self.silent: set[int] = set()
        self.opened: list[int] = []
        self.closed = 0
        #: how DeleteGroups is answered, one a request
        self.deletions: list[ErrorCode | Exception] = []


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

    def wait_for(self, timeout: float) -> None:
        assert 0 < timeout <= 5

    def close(self) -> None:
        self.cluster.closed += 1

    def ask(self, request: Any, *, at_most: int | None = None) -> Any:
        self._require_answer()
        if isinstance(request, MetadataRequest):
            return MetadataResponse(
                brokers=[
                    MetadataResponseBroker(node_id=port, host=host, port=port)
                    for host, port in (FIRST, SECOND)
                ]
            )
        if isinstance(request, DeleteGroupsRequest):
            answer = self.cluster.deletions.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g", error_code=answer)])
        assert isinstance(request, FindCoordinatorRequest)
        number = self.cluster.coordinator
        host, port = (FIRST, SECOND)[number - 1]
        found = Coordinator(key="g", node_id=number, host=host, port=port, error_code=self.cluster.refuses)
        return FindCoordinatorResponse(coordinators=[found])


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    monkeypatch.setattr(FakeConnection, "cluster", FakeCluster(), raising=False)
    monkeypatch.setattr(coordinators, "Connection", FakeConnection)
    monkeypatch.setattr(coordinators, "_RETRY_S", 0.001)
    monkeypatch.setattr(coordinators, "explain_silence", lambda servers, timeout: ClientError("explained"))
    return FakeConnection.cluster


def calls(timeout: float = 60.0) -> Coordinators:
    return Coordinators(Servers("one:1"), timeout)


def who(connection: Any, broker: int) -> int:
    connection._require_answer()
    return broker


def test_the_coordinator_is_asked_and_its_connection_kept(cluster: FakeCluster) -> None:
    asked = calls()
    cluster.coordinator = 2
    assert [asked.ask("g", who) for _ in range(3)] == [2, 2, 2]
    assert cluster.opened == [1, 2]
    del asked
    assert cluster.closed == 2


def test_a_call_after_closing_connects_again(cluster: FakeCluster) -> None:
    asked = calls()
    asked.ask("g", who)
    asked.close()
    assert cluster.closed == 1
    assert asked.ask("g", who) == 1
    assert cluster.opened == [1, 1]


@pytest.mark.parametrize(
    ("settings", "client_id"), [({}, "barnabas"), ({"client.id": "nightly-job"}, "nightly-job")]
)
def test_the_client_id_of_the_settings_is_told(
    cluster: FakeCluster, settings: dict[str, str], client_id: str
) -> None:
    asked = Coordinators(Servers("one:1", settings), 60.0)
    assert asked.ask("g", lambda connection, _: connection.client_id) == client_id


def test_another_broker_is_asked_when_the_coordinator_and_entry_has_died(cluster: FakeCluster) -> None:
    asked = calls()
    assert asked.ask("g", who) == 1
    cluster.silent, cluster.coordinator = {1}, 2
    assert asked.ask("g", who) == 2
    opened = len(cluster.opened)
    assert asked.ask("g", who) == 2
    assert len(cluster.opened) == opened, "the dead one is not tried first again"


@pytest.mark.parametrize("code", coordinators._PASSING)
def test_a_call_is_made_again_when_the_broker_does_not_coordinate_the_group_now(
    cluster: FakeCluster, code: ErrorCode
) -> None:
    def call(connection: Any, broker: int) -> int:
        if broker == 1:
            cluster.coordinator = 2
            check(code, "g")
        return broker

    assert calls().ask("g", call) == 2


def test_what_the_coordinator_refuses_is_raised_at_once(cluster: FakeCluster) -> None:
    made = []

    def call(connection: Any, broker: int) -> None:
        made.append(broker)
        check(ErrorCode.GROUP_AUTHORIZATION_FAILED, "g")

    with pytest.raises(KafkaError, match="g: Not authorised"):
        calls().ask("g", call)
    assert made == [1]


def test_a_refusal_to_name_the_coordinator_is_raised_at_once(cluster: FakeCluster) -> None:
    cluster.refuses = ErrorCode.GROUP_AUTHORIZATION_FAILED
    with pytest.raises(KafkaError, match="the coordinator of g") as raised:
        calls().ask("g", who)
    assert raised.value.code == ErrorCode.GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize("failure", [UnservedError("no such API"), AuthenticationError("who are you")])
def test_what_no_other_try_can_mend_is_raised_at_once(cluster: FakeCluster, failure: ClientError) -> None:
    made = []

    def call(connection: Any, broker: int) -> None:
        made.append(broker)
        raise failure

    with pytest.raises(type(failure), match=str(failure)):
        calls().ask("g", call)
    assert made == [1]


def test_a_coordinator_that_never_answers_is_explained_when_the_time_is_up(cluster: FakeCluster) -> None:
    def call(connection: Any, broker: int) -> None:
        raise ClientError("it does not answer")

    with pytest.raises(ClientError, match="explained"):
        calls(timeout=0.05).ask("g", call)


def test_a_coordinator_that_never_loads_is_named_when_the_time_is_up(cluster: FakeCluster) -> None:
    def call(connection: Any, broker: int) -> None:
        check(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "g")

    with pytest.raises(KafkaError) as raised:
        calls(timeout=0.05).ask("g", call)
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
