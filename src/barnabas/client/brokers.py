"""Sends requests to the live brokers of a cluster, without librdkafka.

librdkafka's admin client (2.16) only uses the brokers that it knows. When the controller has died, the next
request to the controller waits until the request's time limit. When a group's coordinator has died, each
request about the group waits until its time limit. If a program then closes the admin client, an assertion in
librdkafka can end the process (librdkafka issue 5511, pull request 5397).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from enum import IntEnum
from operator import methodcaller
from typing import Any, NamedTuple, ParamSpec, TypeAlias, TypeVar

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import BrokerId
from barnabas.client.addresses import Address, parse_servers
from barnabas.client.connection import BrokerConnection, UnservedError
from barnabas.client.connection_pool import RESPONSE_TIMEOUT, ConnectionPool, PendingResponse, answer_time
from barnabas.client.errors import AuthenticationError, ClientError, error_code
from barnabas.client.reach import explain_silence
from barnabas.client.repeated import Repeated
from barnabas.client.servers import Servers, servers_of
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.kafka.protocol.schema import Request

T = TypeVar("T")
P = ParamSpec("P")
Question: TypeAlias = Request | Repeated

#: error codes that a repeated request can avoid: another broker must answer, or the same one a moment later
_PASSING = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
)
_ONLY_BROKERS = MetadataRequest(topics=[], allow_auto_topic_creation=False)
#: groups in one FindCoordinator request: 500 take a broker 5 ms
_GROUPS = 100
#: seconds between two attempts: at first, and at most
_RETRY_S, _MAX_RETRY_S = 0.05, 1.0


class CoordinatorType(IntEnum):
    """The types of keys in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class UnknownBrokerError(ClientError):
    """The cluster has no live broker with this id."""


class BrokerResponses(NamedTuple):
    """The responses of brokers, and the errors of those that did not answer, by broker id."""

    responses: dict[BrokerId, Any]
    failures: dict[BrokerId, ClientError]


class Brokers:
    """Sends requests to the brokers of one cluster, from any thread. It keeps connections between calls.

    `ask_any`, `ask_controller`, `ask_broker` and `ask_coordinator` repeat a call if no response arrives, or
    if the response says that another broker must answer. So a repeated call must do no harm (see
    `repeatable`). `retry` repeats a call in the same way. The other methods do not repeat calls.

    Args:
        timeout: seconds for each call, including all attempts.

    Raises (every method that sends a request):
        KafkaError: `call` raised it, or the cluster has no controller or coordinator now. Methods that return
            a response do not check the error codes in it.
        ClientError: no broker answered in time.
    """

    def __init__(self, servers: Servers, timeout: float) -> None:
        self.servers = servers
        self.timeout = timeout
        self._bootstrap = parse_servers(servers)
        #: brokers in the last metadata response; brokers that did not answer come last
        self._known: list[Address] = []
        #: the metadata response with the `_known` brokers; a repeated request may get the same object again
        self._noted: MetadataResponse | None = None
        #: the address of each broker, also of brokers that have left the cluster
        self._addresses: dict[BrokerId, Address] = {}
        self._lock = threading.Lock()
        self._pool = ConnectionPool(servers)

    def close(self) -> None:
        """Close the connections. The next call opens new ones."""
        self._pool.close()

    def __del__(self) -> None:
        if hasattr(self, "_pool"):  # else the servers could not be parsed
            self.close()

    # -- one broker

    def ask_any(self, request: Request) -> Any:
        """Return the response of the first broker that answers. Retry for at most `timeout` seconds."""
        return self.retry(lambda deadline: self._ask_first(request, deadline))

    def ask_once(
        self, request: Question, *, response_timeout: float | None = None, deadline: float | None = None
    ) -> Any:
        """Return the response of the first broker that answers. Each broker is asked at most once.

        The response may contain error codes: the caller must check them.

        Args:
            request: a request. For an unchanged response to a `Repeated` request, the method returns the same
                object as the last time.
            response_timeout: seconds that each broker except the last has for its answer; None for all the
                time that is left.
            deadline: monotonic seconds; `timeout` from now if it is None.

        Raises:
            AuthenticationError: the login at a broker fails. No other broker is asked then.
            UnservedError: a broker does not serve the API. No other broker is asked then.
            ClientError: no broker answers.
        """
        return self._ask_first(request, self._deadline(deadline), response_timeout)

    def ask(self, broker: BrokerId, request: Question, *, max_version: int | None = None) -> Any:
        """Send a request in version `max_version` or lower to one broker, once. Return the response.

        If `max_version` is None, the request has the highest version that both sides support. For an
        unchanged response to a `Repeated` request, the method returns the same object as the last time.

        Raises:
            ClientError: the cluster does not have the broker, or the broker does not answer.
        """
        responses, failures = self.ask_each({broker: request}, max_version=max_version)
        for failure in failures.values():
            raise failure
        return responses[broker]

    def ask_controller(self, call: Callable[[BrokerConnection], T]) -> T:
        """Run `call` with a connection to the controller. Return its result.

        If `call` gets no answer, or the broker is not the controller any more, `call` runs again with the
        new controller (see `retry`).
        """

        def attempt(deadline: float) -> T:
            metadata = self.metadata([], deadline)
            address = self.addresses(metadata).get(metadata.controller_id)
            if address is None:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller at the moment")
            return self.connected(address, deadline, call, None)

        return self.retry(attempt)

    def ask_broker(self, broker: BrokerId, call: Callable[[BrokerConnection], T]) -> T:
        """Run `call` with a connection to one broker. Return its result.

        If `call` gets no answer, `call` runs again (see `retry`).

        Raises:
            UnknownBrokerError: the cluster has no live broker with this id. The call is not repeated.
        """

        def attempt(deadline: float) -> T:
            addresses = self.addresses(self.metadata([], deadline))
            if broker not in addresses:
                raise UnknownBrokerError(_unknown(broker, addresses))
            return self.connected(addresses[broker], deadline, call)

        return self.retry(attempt)

    def ask_coordinator(
        self,
        key: str,
        call: Callable[[BrokerConnection, BrokerId], T],
        kind: CoordinatorType = CoordinatorType.GROUP,
    ) -> T:
        """Run `call` with a connection to a coordinator and with that broker's id. Return its result.

        If `call` gets no answer, or the broker is not the coordinator any more, `call` runs again with the
        new coordinator (see `retry`).

        Args:
            key: group or transactional id that the broker coordinates.
            kind: type of `key`.
        """

        def attempt(deadline: float) -> T:
            request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
            answer = self._ask_first(request, deadline)
            found = answer.coordinators[0] if answer.coordinators else answer
            check(found.error_code, f"the coordinator of {key}")
            address = Address(found.host, found.port)
            return self.connected(address, deadline, lambda connection: call(connection, found.node_id))

        return self.retry(attempt)

    # -- many brokers

    def ask_each(
        self,
        requests: Mapping[BrokerId, Question],
        *,
        max_version: int | None = None,
        response_timeout: float | None = None,
        deadline: float | None = None,
    ) -> BrokerResponses:
        """Send requests to several brokers before waiting for the first response. Return the responses.

        A broker that does not answer is in the `failures` of the result, and raises nothing.

        Args:
            requests: a request for each broker. An unchanged response to a `Repeated` request is the same
                object as the last.
            max_version: the highest version of the requests; None for the highest that both sides support.
            response_timeout: seconds for each answer at most; None for all the time that is left.
            deadline: monotonic seconds; `timeout` from now if it is None.
        """
        deadline = self._deadline(deadline)
        answers = BrokerResponses({}, {})
        pending: dict[BrokerId, PendingResponse] = {}
        try:
            for broker, request in requests.items():
                try:
                    pending[broker] = self.send(broker, request, max_version=max_version, deadline=deadline)
                except ClientError as error:
                    answers.failures[broker] = error
            while pending:
                broker = next(iter(pending))
                try:
                    answers.responses[broker] = pending.pop(broker).receive(deadline, response_timeout)
                except ClientError as error:
                    answers.failures[broker] = error
        finally:
            for each in pending.values():
                each.abandon()
        return answers

    def send(
        self,
        broker: BrokerId,
        request: Question,
        *,
        max_version: int | None = None,
        deadline: float | None = None,
    ) -> PendingResponse:
        """Send a request to a broker without waiting for the response. Return an object that receives it.

        Args:
            request: a request. An unchanged response to a `Repeated` request is the same object as the last.
            max_version: the highest version of the request; None for the highest that both sides support.
            deadline: monotonic seconds; `timeout` from now if it is None.

        Raises:
            ClientError: the cluster does not have the broker, or the request cannot be sent.
        """
        deadline = self._deadline(deadline)
        if broker not in self._addresses:
            self.metadata([], deadline)
        if broker not in self._addresses:
            raise ClientError(_unknown(broker, self._addresses))
        address = self._addresses[broker]
        connection = self._pool.acquire(address, deadline, self._learn)
        try:
            connection.wait_for(answer_time(deadline, None))
            connection.send(request, max_version=max_version)
        except BaseException:
            connection.close()
            raise
        return PendingResponse(self._pool, address, connection)

    def ask_every(self, request: Request, *, deadline: float | None = None) -> BrokerResponses:
        """Send the same request to every live broker. Return the responses.

        A broker that does not answer is in the `failures` of the result, and raises nothing.

        Args:
            deadline: monotonic seconds; `timeout` from now if it is None.

        Raises:
            ClientError: no broker answers the request for the live brokers.
        """
        deadline = self._deadline(deadline)
        alive = self.metadata([], deadline).brokers
        return self.ask_each({each.node_id: request for each in alive}, deadline=deadline)

    def coordinators(self, groups: Collection[str]) -> dict[str, BrokerId]:
        """Return the coordinator of each group. Groups without a known coordinator are left out."""
        found: dict[str, BrokerId] = {}
        left = list(groups)
        while left:
            request = FindCoordinatorRequest(
                key=left[0], key_type=CoordinatorType.GROUP, coordinator_keys=left[:_GROUPS]
            )
            response = self.ask_once(request, response_timeout=RESPONSE_TIMEOUT)
            # Before version 4 a request is about one group.
            answered = [(each.key, each) for each in response.coordinators] or [(left[0], response)]
            for group, coordinator in answered:
                if not coordinator.error_code:
                    found[group] = coordinator.node_id
                    self._addresses[coordinator.node_id] = Address(coordinator.host, coordinator.port)
            left = left[len(answered) :]
        return found

    # -- the parts of calls

    def retry(self, attempt: Callable[[float], T]) -> T:
        """Call `attempt` until it succeeds or `timeout` seconds have passed. Return its result.

        `attempt` gets the deadline (monotonic seconds). The call is repeated if no broker answers. It is also
        repeated if the error code says that another broker must answer, or that the same broker can answer
        later. Examples are NOT_COORDINATOR, NOT_CONTROLLER and LEADER_NOT_AVAILABLE.

        Raises:
            KafkaError: `attempt` raised an error with another code: at once. When the time is over: the last
                error, if it has such a code.
            AuthenticationError, UnknownBrokerError, UnservedError: the login failed, the cluster has no such
                broker, or the broker does not serve the API: at once.
            ClientError: no broker answered in time. The text has the reason.
        """
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
            pause = min(2 * pause, _MAX_RETRY_S)

    def metadata(self, topics: list[str] | None, deadline: float) -> MetadataResponse:
        """Return the brokers, the controller, and the topics with names in `topics` (None for all topics).

        This method does not repeat the request: call it in `retry`. `deadline` is in monotonic seconds.
        """
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        answer: MetadataResponse = self._ask_first(request, deadline)
        return answer

    @staticmethod
    def addresses(metadata: MetadataResponse) -> dict[BrokerId, Address]:
        """Return the address of each broker in a MetadataResponse."""
        return {broker.node_id: Address(broker.host, broker.port) for broker in metadata.brokers}

    def address_of(self, broker: BrokerId) -> Address | None:
        """Return the last known address of a broker; None if no response has named it yet."""
        return self._addresses.get(broker)

    def connected(
        self,
        address: Address,
        deadline: float,
        use: Callable[[BrokerConnection], T],
        response_timeout: float | None = RESPONSE_TIMEOUT,
    ) -> T:
        """Call `use` once with a connection to the broker at `address`. Return its result.

        Args:
            deadline: end of the wait for answers, in monotonic seconds.
            response_timeout: largest number of seconds for each answer; None for all the time that is left.

        Raises:
            ClientError: the broker accepts no connection, or does not answer. Errors of `use` pass through.
        """
        connection = self._pool.acquire(address, deadline, self._learn)
        connection.wait_for(answer_time(deadline, response_timeout))
        try:
            answer = use(connection)
        except KafkaError:
            self._pool.release(address, connection)
            raise
        except BaseException:
            connection.close()
            raise
        self._pool.release(address, connection)
        return answer

    def _deadline(self, given: float | None) -> float:
        return time.monotonic() + self.timeout if given is None else given

    def _ask_first(
        self, request: Question, deadline: float, response_timeout: float | None = RESPONSE_TIMEOUT
    ) -> Any:
        failed: ClientError | None = None
        with self._lock:
            entries = list(dict.fromkeys([*self._known, *self._bootstrap]))
        for address in entries:
            share = None if address is entries[-1] else response_timeout
            try:
                answer = self.connected(address, deadline, methodcaller("ask", request), share)
                if isinstance(answer, MetadataResponse) and answer is not self._noted:
                    self._note(answer, address)
                    if not answer.brokers:  # it has just started; that it has no topics either says nothing
                        raise ClientError(f"the broker at {address} knows of no brokers yet")
                return answer
            except (AuthenticationError, UnservedError):
                raise
            except ClientError as error:
                failed = error
                self._prefer_others(address)
        assert failed is not None
        raise failed

    def _learn(self, connection: BrokerConnection, address: Address) -> None:
        self._note(connection.ask(_ONLY_BROKERS), address)

    def _note(self, metadata: MetadataResponse, entry: Address) -> None:
        """Store the brokers of a response for later calls, because the bootstrap servers may disappear.

        `entry` is the address from which the response came.
        """
        addresses = self.addresses(metadata)
        with self._lock:
            self._noted = metadata if metadata.brokers else None
            self._known = [entry, *addresses.values()]
            self._addresses |= addresses

    def _prefer_others(self, address: Address) -> None:
        with self._lock:
            if address in self._known:
                self._known.remove(address)
                self._known.append(address)


def repeatable(call: Callable[P, T], done: ErrorCode) -> Callable[P, T | None]:
    """Return a function that runs `call`, for a caller that calls it again after a ClientError.

    After a ClientError, the broker may have executed the request, although its response was lost. If a later
    call then raises KafkaError with the code `done`, such as TOPIC_ALREADY_EXISTS, the function returns None
    instead. In all other cases it returns the result of `call`, or raises its error.
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
    """Raise KafkaError unless `code` is 0. The error's text names `about`, the subject of the request.

    `message` is the broker's text; None for the usual text of the code.
    """
    if code:
        known = error_code(code)
        is_named = message is not None and about in message
        raise KafkaError(known, message if is_named else f"{about}: {message or known.doc}")


def ask_once(servers: str, timeout: float, request: Request) -> Any:
    """Return the response of the first broker that answers, within `timeout` seconds in total.

    `servers` are the addresses of brokers (``host:port,...``). A broker that accepts no connection is skipped
    after a few seconds. The first broker that accepts one has all the remaining time to answer.

    Raises:
        ClientError: no broker answers.
    """
    with closing(Brokers(servers_of(servers, {}), timeout)) as brokers:
        return brokers.ask_once(request)


def _unknown(broker: BrokerId, known: Collection[BrokerId]) -> str:
    ids = ", ".join(map(str, sorted(known)))
    return f"the cluster has no broker {broker}; its brokers are {ids}"
