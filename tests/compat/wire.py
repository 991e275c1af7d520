"""A client that sends any request in any version, and makes the answers of two brokers comparable."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

from tests.integration.acl_broker import PASSWORD

from barnabas.base.errors import ErrorCode
from barnabas.base.types import ZERO_TOPIC_ID
from barnabas.kafka.protocol.framing import RequestHeader, encode_request, parse_response
from barnabas.kafka.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.kafka.protocol.schema import Request, Struct
from barnabas.kafka.records import batches

Scenario = Callable[["Wire"], Generator[Request, Any, None]]

# What two right answers may differ in: where a broker is, and how it words an error.
_OWN = frozenset({
    "throttle_time_ms", "cluster_id", "host", "port", "log_dir", "total_bytes", "usable_bytes",
    "transaction_start_time_ms", "error_message", "batch_index_error_message", "documentation",
    "acknowledge_error_message",
})  # fmt: skip
# Names that each broker makes up, and what stands for none: what matters is which of them are the same.
_MADE_UP: dict[str, Any] = {"member_id": "", "leader": "", "session_id": 0, "producer_id": -1}
# The same for fields of one struct: Apache Kafka has settings that Barnabas has not, and says of a duplicate
# when it was first appended.
_OWN_HERE = frozenset(
    {("CreatableTopicResult", "configs"), ("PartitionProduceResponse", "log_append_time_ms")}
)
# The hosts in rules are not those of brokers.
_SAME = frozenset({("AclDescription", "host"), ("DeleteAclsMatchingAcl", "host")})
# What has no meaning beside an error code.
_BESIDE_ERROR = frozenset({
    ("PartitionProduceResponse", "log_start_offset"), ("JoinGroupResponse", "protocol_name"),
    ("PartitionData", "aborted_transactions"), ("DeletableTopicResult", "topic_id"),
})  # fmt: skip


PATIENCE_SECONDS = 5.0
#: an id of no topic
NO_TOPIC_ID = b"no such topic id"
# A coordinator that has just begun says so for a moment; Kafka's clients ask again too.
_ASK_AGAIN = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
)  # fmt: skip


class Wire:
    """A connection to one broker, with one level: each request has the API's lowest version plus `level`."""

    def __init__(
        self, bootstrap: str, level: int, prefix: str, client_id: str = "compat", user: str = ""
    ) -> None:
        """Connect, and log in as `user` if it is not empty."""
        host, _, port = bootstrap.rpartition(":")
        self._user = user
        self._client_id = client_id
        self._address = (host, int(port))
        self._correlation = 0
        self.level = level
        self._prefix = prefix
        self._topics: dict[bytes, str] = {ZERO_TOPIC_ID: ""}
        self._made_up: dict[Any, str] = {}
        self.exhausted = True  # whether every API asked was at its highest version
        self._connect()

    def _connect(self) -> None:
        self._socket = socket.create_connection(self._address, timeout=PATIENCE_SECONDS)
        if self._user:
            self._exchange(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            secret = f"\0{self._user}\0{PASSWORD}".encode()
            assert not self._exchange(SaslAuthenticateRequest(auth_bytes=secret), 2).error_code

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: Request, version: int | None = None) -> Any:
        """Return the broker's answer; None if it closed the connection or gave no answer."""
        lowest, highest = request.versions
        if version is None:
            version = min(highest, lowest + self.level)
            self.exhausted &= version == highest
        for _ in range(20):
            answer = self._exchange(request, version)
            if not any(code in _ASK_AGAIN for code in error_codes(answer)):
                break
            time.sleep(0.1)
        return answer

    def _exchange(self, request: Request, version: int) -> Any:
        return self.receive(self.send(request, version))

    def send(self, request: Request, version: int) -> RequestHeader:
        """Send a request whose answer can be late. `receive` needs the header that this returns."""
        self._correlation += 1
        header = RequestHeader(request.api_key, version, self._correlation, self._client_id)
        self._socket.sendall(b"".join(encode_request(header, request)))
        return header

    def has_answer(self) -> bool:
        """Whether an answer has begun to arrive, or the broker has closed the connection."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def receive(self, header: RequestHeader) -> Any:
        """Return the answer to the oldest request without one; None if the broker gave none in time."""
        try:
            return parse_response(header, self._receive(struct.unpack(">i", self._receive(4))[0]))
        except (ConnectionError, TimeoutError):
            self._socket.close()
            self._connect()
            return None

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            data = self._socket.recv(size - len(received))
            if not data:
                raise ConnectionError("closed")
            received += data
        return bytes(received)

    def name(self, suffix: str) -> str:
        """Return a name that is new in this broker, and the same for the other brokers."""
        return f"{self._prefix}-{self.level}-{suffix}"

    def topic(self, suffix: str, partitions: int = 1, **config: str) -> str:
        """Create a topic and learn its id."""
        name = self.name(suffix)
        configs = [CreatableTopicConfig(name=key.replace("_", "."), value=config[key]) for key in config]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
        created = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
        assert created.topics[0].error_code == 0, created
        self._topics[created.topics[0].topic_id] = name
        # The controller knows it; the broker may take a moment to lead it.
        wanted = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
        ask = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=wanted)])
        while any(error_codes(self.ask(ask, 9))):
            time.sleep(0.01)
        return name

    def learn(self, topic_id: bytes, name: str) -> None:
        """Note the id of a topic, the last one if the topic is created again."""
        self._topics.pop(topic_id, None)
        self._topics[topic_id] = name

    def known_id(self, name: str) -> bytes:
        """Return the last id of a topic, or an id that no topic has."""
        return next((each for each, known in reversed(self._topics.items()) if known == name), NO_TOPIC_ID)

    def topic_id(self, name: str) -> bytes:
        return next(topic_id for topic_id, known in self._topics.items() if known == name)

    def another(self, client_id: str) -> Wire:
        """Return a second connection to the broker, of the client with this id."""
        host, port = self._address
        return Wire(f"{host}:{port}", self.level, self._prefix, client_id)

    def call(self, made_up: Any, name: str) -> None:
        """Give a name to an id that the broker has made up. The other broker's id gets the same name."""
        self._made_up.setdefault(made_up, name)

    def name_of(self, made_up: Any) -> str | None:
        """Return the name of an id that the broker has made up; None if it has none yet."""
        return self._made_up.get(made_up)

    def plain(self, answer: Any, field: str = "") -> Any:
        """Return the answer as dicts and lists, without fields that may differ between correct answers."""
        if isinstance(answer, Struct):
            kind = type(answer).__name__
            left_out = _OWN_HERE | _BESIDE_ERROR if getattr(answer, "error_code", 0) else _OWN_HERE
            kept = [
                name
                for name in answer.__annotations__
                if (name not in _OWN or (kind, name) in _SAME) and (kind, name) not in left_out
            ]
            return {name: self.plain(getattr(answer, name), name) for name in kept}
        if isinstance(answer, list):
            items = [self.plain(item, field) for item in answer]
            is_set = field in ("partitions", "subscribed_topic_names") or (
                items and isinstance(items[0], dict)
            )
            return sorted(items, key=repr) if is_set else items
        if field == "topic_id":
            return f"id of {self._topics.get(answer, 'a topic')!r}"
        if field == "records" and answer and (shapes := self._made_by_producers(bytes(answer))):
            return shapes
        if field in _MADE_UP and answer != _MADE_UP[field]:
            return self._made_up.setdefault(answer, f"{field} {len(self._made_up)}")
        return bytes(answer) if isinstance(answer, memoryview) else answer

    def _made_by_producers(self, records: bytes) -> list[dict[str, Any]]:
        """Return the batches with a producer id and a marker's time, which are generated; an empty list if
        there are none.
        """
        headers = [header for _, header in batches(records)]
        if all(header.producer_id < 0 for header in headers):
            return []
        return [
            {
                "offsets": (header.base_offset, header.last_offset),
                "flags": header.attributes,
                "producer": self.plain(header.producer_id, "producer_id"),
                "epoch": header.producer_epoch,
                "sequence": header.base_sequence,
            }
            for header in headers
        ]


def converse(bootstrap: str, scenario: Scenario) -> list[tuple[str, Any]]:
    """Send every request of the scenario in every version. Return each with its answer."""
    answers: list[tuple[str, Any]] = []
    for level in range(100):
        wire = Wire(bootstrap, level, scenario.__name__.replace("_", "-"))
        wire.ask(FindCoordinatorRequest(key="any"), 0)  # this is what makes a new broker coordinate
        conversation = scenario(wire)
        try:
            request = next(conversation)
            while True:
                version = min(request.versions[1], request.versions[0] + level)
                answer = wire.ask(request)
                answers.append((f"v{version} {request}", wire.plain(answer)))
                request = conversation.send(answer)
        except StopIteration:
            pass
        finally:
            wire.close()
        if wire.exhausted and answers:
            return answers
    raise AssertionError("no API has a hundred versions")


def error_codes(answer: Any) -> Iterator[int]:
    """Yield every error code in an answer."""
    if isinstance(answer, list):
        for item in answer:
            yield from error_codes(item)
    elif isinstance(answer, Struct):
        for name in answer.__annotations__:
            value = getattr(answer, name)
            if name == "error_code":
                yield value
            else:
                yield from error_codes(value)


def with_epochs_of_kafka_4_4(answer: Any) -> Any:
    """Return a plain answer with the epochs of a share group as Kafka 4.4 counts them.

    Kafka 4.4 counts a new group's epochs from 1, and Barnabas and Kafka 4.2 from 0. When the last member
    leaves, Kafka 4.4 also sets the assignment epoch to the group epoch.
    """
    if isinstance(answer, list):
        return [with_epochs_of_kafka_4_4(item) for item in answer]
    if not isinstance(answer, dict):
        return answer
    counted = {name: with_epochs_of_kafka_4_4(value) for name, value in answer.items()}
    for name in ("group_epoch", "assignment_epoch", "member_epoch"):
        if answer.get(name, 0) > 0:
            counted[name] += 1
    if answer.get("group_state") == "Empty":
        counted["assignment_epoch"] = counted["group_epoch"]
    return counted


def differences(mine: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Yield the differences of two plain answers."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        for name in mine.keys() & theirs.keys():  # an error leaves out some
            yield from differences(mine[name], theirs[name], f"{path}.{name}")
    elif isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        for index, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif mine != theirs:
        yield f"{path}: we {mine!r}, Kafka {theirs!r}"
