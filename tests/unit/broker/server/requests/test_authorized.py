"""A handler gets only the permitted parts of a request. The answer to the others has the API's own form."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.views import view_of

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.awaitables import LongResponse
from barnabas.broker.metadata import ClusterImage
from barnabas.broker.server.handlers import load
from barnabas.broker.server.handlers.heartbeat import heartbeat
from barnabas.broker.server.handlers.produce import produce
from barnabas.broker.server.requests.api import Served
from barnabas.broker.server.requests.authorized import authorized
from barnabas.broker.server.requests.context import NoConnection, RequestContext
from barnabas.broker.server.requests.needs import Topic
from barnabas.kafka.protocol.framing import RequestHeader
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.kafka.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.kafka.security.acls import (
    AclBinding,
    AclEntry,
    Acls,
    Authorizer,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
    SubjectRules,
)
from barnabas.kafka.security.principal import Principal

TOPIC_ID = bytes(range(16))
ALICE = Principal("alice")


class Client(NoConnection):
    principal = ALICE


NOBODY = SubjectRules(frozenset())


def rule(kind: ResourceType, name: str, operation: Operation) -> AclBinding:
    return AclBinding(ResourcePattern(kind, name), AclEntry(str(ALICE), Permission.ALLOW, operation))


class World:
    """One API, whose handler answers at once or later, and the ACL rules."""

    def __init__(self, api: Any, handle: Any, *rules: AclBinding) -> None:
        self.acls = Acls.of(rules)
        authorizer = Authorizer(lambda: self.acls, SubjectRules(frozenset({"User:root"})))
        view = view_of(ClusterImage(topic_names={TOPIC_ID: "mine"}))
        self.served = authorized(Served(api, handle), authorizer, view)

    def ask(self, request: Any, connection: NoConnection | None = None) -> Any:
        context = RequestContext(RequestHeader(0, 3, 1, "c"), connection or Client("PLAINTEXT"))
        return self.served.handle(context, request)


def asked(*names: str | bytes, **fields: Any) -> ProduceRequest:
    return ProduceRequest(
        topic_data=[
            TopicProduceData(
                **({"topic_id": name} if isinstance(name, bytes) else {"name": name}),
                partition_data=[PartitionProduceData(index=0)],
            )
            for name in names
        ],
        acks=1,
        **fields,
    )


def served(_context: Any, request: ProduceRequest) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[PartitionProduceResponse(index=0)],
            )
            for topic in request.topic_data
        ]
    )


async def served_later(context: Any, request: ProduceRequest) -> ProduceResponse:
    await asyncio.sleep(0)
    return served(context, request)


def codes(response: ProduceResponse) -> dict[Any, int]:
    return {
        topic.name or topic.topic_id: topic.partition_responses[0].error_code for topic in response.responses
    }


MINE = rule(ResourceType.TOPIC, "mine", Operation.WRITE)
NOT_MINE = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("handle", [served, served_later])
def test_allowed_topics_are_served_and_the_others_refused_within_one_answer(handle):
    world = World(produce, handle, MINE)

    async def ask(*names: str | bytes) -> dict[Any, int]:
        answer = world.ask(asked(*names))
        return codes(await answer if asyncio.iscoroutine(answer) else answer)

    assert asyncio.run(ask("other", "mine")) == {"mine": 0, "other": NOT_MINE}
    assert asyncio.run(ask("mine")) == {"mine": 0}
    assert asyncio.run(ask("a", "b")) == {"a": NOT_MINE, "b": NOT_MINE}
    assert asyncio.run(ask(TOPIC_ID, "other")) == {TOPIC_ID: 0, "other": NOT_MINE}
    assert asyncio.run(ask(b"x" * 16)) == {b"x" * 16: 0}  # the handler knows no such topic


def test_an_answer_in_slices_stays_one_though_something_in_it_is_refused():
    world = World(produce, lambda *asked: LongResponse(served_later(*asked)), MINE)

    async def ask():
        answer = world.ask(asked("mine", "other"))
        assert isinstance(answer, LongResponse)
        return codes(await answer)

    assert asyncio.run(ask()) == {"mine": 0, "other": NOT_MINE}


def test_a_need_of_one_topic_is_of_the_topic_that_the_request_names():
    request, access = SimpleNamespace(topic="other"), Authorizer(lambda: Acls.of((MINE,)), NOBODY).access
    with pytest.raises(KafkaError) as refused:
        Topic(Operation.WRITE).check(access(ALICE, "host"), request)
    assert refused.value.code is NOT_MINE
    request.topic = "mine"
    Topic(Operation.WRITE).check(access(ALICE, "host"), request)


def test_a_request_without_acks_writes_what_it_may_and_is_then_refused():
    written = []
    world = World(produce, lambda _, request: written.append(request.topic_data[0].name), MINE)
    request = asked("mine", "other")
    request.acks = 0
    with pytest.raises(KafkaError) as refused:
        world.ask(request)
    assert (written, refused.value.code) == (["mine"], NOT_MINE)


def test_a_need_of_the_whole_request_refuses_it_as_a_whole():
    world = World(heartbeat, lambda *_: HeartbeatResponse(), rule(ResourceType.GROUP, "g", Operation.READ))
    assert world.ask(HeartbeatRequest(group_id="g")).error_code == 0
    with pytest.raises(KafkaError) as refused:
        world.ask(HeartbeatRequest(group_id="h"))
    assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    world = World(produce, served, MINE)
    with pytest.raises(KafkaError) as refused:
        world.ask(asked("mine", transactional_id="t"))
    assert refused.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_change_of_the_rules_holds_for_the_next_request():
    world = World(produce, served)
    assert codes(world.ask(asked("mine"))) == {"mine": NOT_MINE}
    world.acls = Acls.of((MINE,))
    assert codes(world.ask(asked("mine"))) == {"mine": 0}


def test_a_super_user_and_the_broker_itself_may_do_everything():
    world = World(produce, served)
    root = Client("PLAINTEXT")
    root.principal = Principal("root")
    for connection in (root, NoConnection("PLAINTEXT")):
        assert codes(world.ask(asked("mine", "other"), connection)) == {"mine": 0, "other": 0}


def test_every_api_declares_what_its_client_must_be_allowed():
    assert [api.name for api in load().values() if not api.needs] == []
