"""The live brokers of a cluster, asked in the protocol itself.

librdkafka's admin client (2.16) keeps to the brokers that it knows. Once the controller has died, the next
call for it waits until its time is up. Once a group's coordinator has died, so does each call about the
group. An assertion may then end the process when the client is closed (librdkafka issue 5511, pull request
5397).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, ParamSpec, TypeVar

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import BrokerId
from barnabas.client.addresses import Address, parse_servers
from barnabas.client.connection import CLIENT_ID, Connection, UnservedError
from barnabas.client.errors import AuthenticationError, ClientError, error_code
from barnabas.client.reach import explain_silence
from barnabas.client.servers import Servers
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.kafka.protocol.schema import Request

T = TypeVar("T")
P = ParamSpec("P")

#: with these an answer says that another broker is to be asked, or that this one can answer in a moment
_PASSING = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.OFFSET_NOT_AVAILABLE,
)
#: Seconds that a broker has to accept a connection, or to answer what takes no waiting.
PATIENCE = 5.0
#: seconds between two tries: at first, and at most
_RETRY_S, _LONGEST_RETRY_S = 0.05, 1.0


class CoordinatorType(IntEnum):
    """The key types of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class UnknownBrokerError(ClientError):
    """The cluster has no broker of this id now."""


class Brokers:
    """Asks the brokers of one cluster, from any thread. Connections are kept, one for each broker.

    A call is repeated when the connection breaks, the broker does not answer in time, or it names another
    broker as the right one. So a call must be harmless when it is done twice (`repeatable`).

    Args:
        timeout: seconds for each call, with all of its tries.

    Raises (every method that asks):
        KafkaError: a broker refused.
        ClientError: the right broker does not answer within `timeout` seconds.
    """

    def __init__(self, servers: Servers, timeout: float) -> None:
        self.servers = servers
        self.timeout = timeout
        self._bootstrap = parse_servers(servers)
        #: the brokers that the cluster had when it was asked last; those that did not answer come last
        self._known: list[Address] = []
        self._lock = threading.Lock()
        self._idle: dict[Address, Connection] = {}

    def close(self) -> None:
        """Leave the brokers. A call after that connects again."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for connection in idle.values():
            connection.close()

    def __del__(self) -> None:
        if hasattr(self, "_idle"):  # else the servers could not be parsed
            self.close()

    def ask_any(self, request: Request) -> Any:
        """Return the response of the first broker that answers."""
        return self.insist(lambda deadline: self._ask_first(request, deadline))

    def ask_controller(self, call: Callable[[Connection], T]) -> T:
        """Return the result of `call`, given a connection to the controller, which has all of the time."""

        def attempt(deadline: float) -> T:
            metadata = self.metadata([], deadline)
            address = self.addresses(metadata).get(metadata.controller_id)
            if address is None:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller at the moment")
            return self.connected(address, deadline, call, None)

        return self.insist(attempt)

    def ask_broker(self, broker: BrokerId, call: Callable[[Connection], T]) -> T:
        """Return the result of `call` with a connection to one broker. Raises UnknownBrokerError at once."""

        def attempt(deadline: float) -> T:
            addresses = self.addresses(self.metadata([], deadline))
            if broker not in addresses:
                known = ", ".join(map(str, sorted(addresses)))
                raise UnknownBrokerError(f"the cluster has no broker {broker}; its brokers are {known}")
            return self.connected(addresses[broker], deadline, call)

        return self.insist(attempt)

    def ask_coordinator(
        self,
        key: str,
        call: Callable[[Connection, BrokerId], T],
        kind: CoordinatorType = CoordinatorType.GROUP,
    ) -> T:
        """Return the result of `call`, given a connection to a coordinator and that broker's id.

        The coordinator is that of a group or of a transactional id.
        """

        def attempt(deadline: float) -> T:
            request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
            answer = self._ask_first(request, deadline)
            found = answer.coordinators[0] if answer.coordinators else answer
            check(found.error_code, f"the coordinator of {key}")
            address = Address(found.host, found.port)
            return self.connected(address, deadline, lambda connection: call(connection, found.node_id))

        return self.insist(attempt)

    def insist(self, attempt: Callable[[float], T]) -> T:
        """Return the result of `attempt`, given its deadline (monotonic seconds). Retries like a call."""
        deadline = time.monotonic() + self.timeout
        pause = _RETRY_S
        while True:
            try:
                return attempt(deadline)
            except (AuthenticationError, UnknownBrokerError, UnservedError):
                raise
            except KafkaError as error:
                if error.code not in _PASSING or time.monotonic() + pause > deadline:
                    raise
            except ClientError:
                if time.monotonic() + pause > deadline:
                    raise explain_silence(self.servers, self.timeout) from None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_RETRY_S)

    def metadata(self, topics: list[str] | None, deadline: float) -> MetadataResponse:
        """Return brokers, controller and some topics, or with None all, within `insist`."""
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        answer: MetadataResponse = self._ask_first(request, deadline)
        return answer

    @staticmethod
    def addresses(metadata: MetadataResponse) -> dict[BrokerId, Address]:
        """Return the address of each broker."""
        return {broker.node_id: Address(broker.host, broker.port) for broker in metadata.brokers}

    def connected(
        self,
        address: Address,
        deadline: float,
        use: Callable[[Connection], T],
        patience: float | None = PATIENCE,
    ) -> T:
        """Return the result of `use` with a connection to a broker, within `insist`. Raises its errors.

        Args:
            patience: seconds for each answer at most; None for all that is left.
        """
        connection = self._take(address, deadline)
        left = max(deadline - time.monotonic(), 0.001)
        connection.wait_for(left if patience is None else fair_share(left, patience))
        try:
            answer = use(connection)
        except KafkaError:
            self._keep(address, connection)
            raise
        except BaseException:
            connection.close()
            raise
        self._keep(address, connection)
        return answer

    def _ask_first(self, request: Request, deadline: float) -> Any:
        failed: ClientError | None = None
        for address in self._entries():
            try:
                return self.connected(address, deadline, lambda connection: connection.ask(request))
            except (AuthenticationError, UnservedError):
                raise
            except ClientError as error:
                failed = error
                self._prefer_others(address)
        assert failed is not None
        raise failed

    def _entries(self) -> Iterator[Address]:
        with self._lock:
            known = [*self._known, *self._bootstrap]
        yield from dict.fromkeys(known)

    def _prefer_others(self, address: Address) -> None:
        with self._lock:
            if address in self._known:
                self._known.remove(address)
                self._known.append(address)

    def _take(self, address: Address, deadline: float) -> Connection:
        with self._lock:
            connection = self._idle.pop(address, None)
        if connection is not None and not connection.is_usable():  # closed while it was idle
            connection.close()
            connection = None
        if connection is None:
            connection = Connection(
                *address,
                fair_share(deadline - time.monotonic(), PATIENCE),
                client_id=self.servers.settings.get("client.id", CLIENT_ID),
                security=self.servers.security,
            )
            try:
                self._learn(connection, address)
            except BaseException:
                connection.close()
                raise
        return connection

    def _learn(self, connection: Connection, address: Address) -> None:
        """Ask for the brokers of the cluster, for the day when those that were named at first are gone."""
        brokers: Any = connection.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False)).brokers
        with self._lock:
            self._known = [address, *(Address(broker.host, broker.port) for broker in brokers)]

    def _keep(self, address: Address, connection: Connection) -> None:
        with self._lock:
            if self._idle.setdefault(address, connection) is connection:
                return
        connection.close()  # another thread has kept one


def repeatable(call: Callable[P, T], done: ErrorCode) -> Callable[P, T | None]:
    """`call`, so that it may be made again after its answer was lost.

    The refusal `done` tells then that the first request was carried out.
    """
    is_answer_lost = False

    def attempt(*args: P.args, **kwargs: P.kwargs) -> T | None:
        nonlocal is_answer_lost
        try:
            return call(*args, **kwargs)
        except ClientError:
            is_answer_lost = True
            raise
        except KafkaError as error:
            if not is_answer_lost or error.code != done:
                raise
            return None

    return attempt


def check(code: int, about: str, message: str | None = None) -> None:
    """Raise KafkaError, with its subject, unless `code` is 0."""
    if code:
        known = error_code(code)
        is_named = message is not None and about in message
        raise KafkaError(known, message if is_named else f"{about}: {message or known.doc}")


def fair_share(left: float, patience: float) -> float:
    """The seconds, `patience` at most, that one broker gets of those `left`: others shall have a turn."""
    left = max(left, 0.001)
    return min(patience, max(left / 2, 0.5), left)
