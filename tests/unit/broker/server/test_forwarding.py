"""The controller answers a request for it, whichever broker the client sent it to (KIP-590)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from simulation.virtual_time import run_virtual
from tests.views import view_of

from barnabas.base.environment.environment import Environment
from barnabas.base.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.broker.config import BrokerConfig
from barnabas.broker.interbroker import DisconnectedError, NotConnectedError
from barnabas.broker.metadata.image import ClusterImage, ImageDelta
from barnabas.broker.server.forwarding import (
    Forwarding,
    decode_principal,
    encode_principal,
    was_not_controller,
)
from barnabas.broker.server.handlers import create_topics, envelope, update_features
from barnabas.broker.server.requests.api import Served
from barnabas.broker.server.requests.context import NoConnection, RequestContext
from barnabas.broker.server.requests.dispatch import Dispatcher
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.kafka.protocol.framing import RequestHeader
from barnabas.kafka.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.kafka.protocol.messages.envelope import EnvelopeRequest
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.kafka.security.principal import ANONYMOUS, Principal


class Member:
    """One broker: the part that forwards, and the part that decides."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.image = ClusterImage(controller_id=1)
        #: contexts of the requests that were answered here
        self.answered: list[RequestContext] = []
        self.synced_at: list[float] = []
        any_: Any = self
        self.forwarding = Forwarding(
            view_of(config=BrokerConfig(node_id=node_id)), any_, any_, NoConnection("PLAINTEXT")
        )
        self.served = self.forwarding.forwarded(Served(create_topics.create_topics, self.create))
        self.envelope = envelope.envelope.using(
            any_, self.forwarding, Dispatcher(self.forwarding.local, LongWork(Environment.of_system()))
        )

    async def create(self, context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
        code = ErrorCode.NONE if self.cluster.controller == self.node_id else ErrorCode.NOT_CONTROLLER
        if not code:
            self.answered.append(context)
        results = [CreatableTopicResult(name=topic.name, error_code=code) for topic in request.topics]
        return CreateTopicsResponse(topics=results)

    # --- as `ToController` and `MetadataLoader` ---

    @property
    def controller_id(self) -> int:
        return self.image.controller_id

    async def send(self, request: Any, *, timeout_s: float, purpose: str) -> Any:
        self.cluster.deadlines.append(asyncio.get_running_loop().time() + timeout_s)
        if self.controller_id == -1:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        failure = self.cluster.failures.pop(0) if self.cluster.failures else None
        if failure is not None:
            raise failure
        target = self.cluster.members[self.controller_id]
        context = RequestContext(RequestHeader(58, 0, 1, f"broker-{self.node_id}"), NoConnection("PLAINTEXT"))
        try:
            return await target.envelope.handle(context, request)
        except KafkaError as error:
            return envelope.envelope.on_error(request, error)

    async def synced(self) -> ClusterImage:
        self.synced_at.append(asyncio.get_running_loop().time())
        return self.image

    # --- as `Controller` ---

    @property
    def active(self) -> bool:
        return self.cluster.controller == self.node_id

    # --- what a test does ---

    def learns(self, controller_id: int) -> None:
        before, self.image = self.image, self.image._replace(controller_id=controller_id)
        self.forwarding.follow(ImageDelta(before, self.image))

    async def ask(self, *names: str, timeout_ms: int = 10_000, version: int = 5) -> Any:
        context = RequestContext(RequestHeader(19, version, 7, "a client"), Client())
        topics = [CreatableTopic(name=name) for name in names]
        return await self.served.handle(context, CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms))


class Client(NoConnection):
    client_host = "192.0.2.7"
    principal = Principal("alice")

    def __init__(self) -> None:
        super().__init__("CLIENTS")


class Cluster:
    def __init__(self) -> None:
        self.controller = 1
        self.failures: list[Exception] = []
        #: by when each envelope was to be answered
        self.deadlines: list[float] = []
        self.members = {number: Member(self, number) for number in (1, 2, 3)}


def codes(response: CreateTopicsResponse) -> list[int]:
    return [topic.error_code for topic in response.topics]


@pytest.mark.parametrize("asked", [1, 2])
def test_any_broker_answers_as_the_controller_does(asked):
    async def scenario():
        cluster = Cluster()
        assert codes(await cluster.members[asked].ask("a", "b")) == [0, 0]
        (context,) = cluster.members[1].answered
        assert (context.client_id, context.api_version) == ("a client", 5)
        assert context.client_host == "/192.0.2.7"
        assert context.connection.principal == Principal("alice")
        assert len(cluster.members[asked].synced_at) == (asked != 1)

    run_virtual(scenario())


def test_a_principal_is_read_as_it_was_written_and_nobody_is_anonymous():
    assert encode_principal(Principal("al")) == b"\0\0" + b"\x05User" + b"\x03al" + b"\0\0"
    assert decode_principal(encode_principal(Principal("CN=a,O=b"))) == Principal("CN=a,O=b")
    assert decode_principal(None) == ANONYMOUS
    for data in (b"", b"\0", b"\0\x09" + bytes(9), b"\0\0\x05"):
        with pytest.raises(ProtocolError):
            decode_principal(data)


def test_a_broker_that_is_no_longer_the_controller_sends_the_request_on_to_the_new_one():
    async def scenario():
        cluster = Cluster()
        cluster.controller = 3  # nobody knows yet
        asking = asyncio.ensure_future(cluster.members[1].ask("a"))
        await asyncio.sleep(3)
        cluster.members[1].learns(3)
        assert codes(await asking) == [0]
        assert asyncio.get_running_loop().time() == pytest.approx(3)
        assert len(cluster.members[3].answered) == 1

    run_virtual(scenario())


def test_without_a_controller_the_client_is_told_in_time_to_try_again():
    async def scenario():
        cluster = Cluster()
        cluster.controller = -1
        cluster.members[2].learns(-1)
        with pytest.raises(KafkaError) as raised:
            await cluster.members[2].ask("a", timeout_ms=4000)
        assert raised.value.code is ErrorCode.NOT_CONTROLLER
        assert asyncio.get_running_loop().time() == pytest.approx(4)

    run_virtual(scenario())


def test_what_was_never_sent_is_sent_again_and_what_may_have_been_done_is_not():
    async def scenario():
        cluster = Cluster()
        cluster.failures = [NotConnectedError("it restarts"), NotConnectedError("it restarts")]
        assert codes(await cluster.members[2].ask("a")) == [0]
        cluster.failures = [DisconnectedError("it was killed")]
        with pytest.raises(KafkaError) as raised:
            await cluster.members[2].ask("b")
        assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert len(cluster.members[1].answered) == 1

    run_virtual(scenario())


@pytest.mark.parametrize(("timeout_ms", "expected_s"), [(4000, 4.0), (0, 30.0), (-1, 30.0)])
def test_an_envelope_that_is_sent_again_has_no_more_time_than_the_request(timeout_ms, expected_s):
    async def scenario():
        cluster = Cluster()
        cluster.failures = [NotConnectedError("it restarts") for _ in range(3)]
        assert codes(await cluster.members[2].ask("a", timeout_ms=timeout_ms)) == [0]
        assert cluster.deadlines == pytest.approx([expected_s] * 4)

    run_virtual(scenario())


def test_a_broker_sends_requests_of_its_own():
    async def scenario():
        cluster = Cluster()
        request = CreateTopicsRequest(topics=[CreatableTopic(name="a")])
        response = await cluster.members[2].forwarding.send(request, timeout_s=2.0)
        assert codes(response) == [0]
        assert cluster.members[1].answered[0].client_id == "broker-2"

    run_virtual(scenario())


def test_an_envelope_holds_only_what_brokers_forward():
    async def scenario():
        cluster = Cluster()
        for data in (
            b"",
            b"\0",
            HeartbeatRequest.api_key.to_bytes(2, "big") + bytes(20),
            b"\0\x13" + bytes(3),
        ):
            answer = await cluster.members[2].send(
                EnvelopeRequest(request_data=data, request_principal=None), timeout_s=1.0, purpose=""
            )
            assert answer.error_code == ErrorCode.INVALID_REQUEST, data
            assert answer.response_data is None

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("item_codes", "expected"),
    [([41, 41], True), ([41, 0], False), ([41, 36], False), ([], False), ([0], False)],
)
def test_a_request_is_sent_again_only_when_nothing_of_it_was_done(item_codes, expected):
    topics = [CreatableTopicResult(name="a", error_code=code) for code in item_codes]
    assert was_not_controller(CreateTopicsResponse(topics=topics)) is expected
    top = update_features.update_features.response(error_code=ErrorCode.NOT_CONTROLLER)
    assert was_not_controller(top)
