"""The console's requests to the cluster: one connection for each broker, opened when it is needed."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from barnabas.base.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.client.addresses import parse_servers
from barnabas.client.connection import Connection, Repeated
from barnabas.client.errors import AuthenticationError, ClientError, error_code
from barnabas.client.servers import security_for
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.kafka.protocol.schema import Request

#: seconds for which an answer about the whole cluster is shared
_FRESH_S, _LONGEST_REST_S = 1.0, 5.0
_GROUP = 0
#: groups in one FindCoordinator request: 500 take a broker 5 ms
_AT_ONCE = 100


class Kafka:
    """Requests to a cluster, from any thread; each broker is asked one thing at a time.

    Raises (every method):
        ClientError: a broker does not answer in `timeout` seconds, or does not serve what is asked.
        KafkaError: it refuses.
    """

    def __init__(self, servers: str, timeout: float = 10.0) -> None:
        self.servers = servers
        self._security = security_for(servers)
        self._timeout = timeout
        self._addresses: dict[int, tuple[str, int]] = {}
        self._connections: dict[int, Connection] = {}
        #: by broker; `_ANY` is for what any of them answers
        self._locks: dict[int, threading.Lock] = {}
        self._lock = threading.Lock()
        #: until when the answer is shared, and the answer
        self._metadata: tuple[float, Any] | None = None
        #: the metadata that they are from, and the names of topics by their ids
        self._names: tuple[Any, dict[bytes, str]] | None = None
        #: megabytes in a large cluster, and mostly the same each time
        self._everything = Repeated(MetadataRequest(topics=None, allow_auto_topic_creation=False))

    def close(self) -> None:
        """Close the connections; nothing may be asked afterwards."""
        for connection in self._connections.values():
            connection.close()

    def metadata(self, topics: Iterable[str] | None = None) -> Any:
        """MetadataResponse for some topics, or for all. No topic is created.

        For all topics it is shared for a second or more, and remains the same object for as long as the
        cluster answers the same.
        """
        if topics is not None:
            named = [MetadataRequestTopic(name=name) for name in topics]
            return self._asked_metadata(MetadataRequest(topics=named, allow_auto_topic_creation=False))
        known = self._metadata
        if known is None or time.monotonic() > known[0]:
            began = time.monotonic()
            answer = self._asked_metadata(self._everything)
            ended = time.monotonic()
            known = self._metadata = (ended + rest(_FRESH_S, ended - began, _LONGEST_REST_S), answer)
        return known[1]

    def address(self, broker: int) -> tuple[str, int] | None:
        """The last known host and port of a broker; None for one that the console has not seen."""
        return self._addresses.get(broker)

    def topic_names(self) -> Mapping[bytes, str]:
        """The names of all topics by their ids, made once for as long as the cluster says the same."""
        metadata = self.metadata()
        known = self._names
        if known is None or known[0] is not metadata:
            known = self._names = metadata, {topic.topic_id: topic.name for topic in metadata.topics}
        return known[1]

    def ask(self, broker: int, request: Request | Repeated) -> Any:
        """The response of one broker."""
        with self._lock:
            lock = self._locks.setdefault(broker, threading.Lock())
        with lock:
            connection = self._connections.get(broker)
            if connection is not None:
                try:
                    return _asked(connection, request)
                except ClientError:  # it may have closed an idle connection
                    self._drop(broker)
            connection = self._connections[broker] = self._connect(broker)
            try:
                return _asked(connection, request)
            except ClientError:
                self._drop(broker)
                raise

    def ask_any(self, request: Request | Repeated) -> Any:
        """The response of the first broker that answers."""
        return self.ask(_ANY, request)

    def coordinators(self, groups: Collection[str]) -> dict[str, int]:
        """The brokers that groups' requests go to; a group whose coordinator is not known is left out."""
        found: dict[str, int] = {}
        left = list(groups)
        while left:
            request = FindCoordinatorRequest(key=left[0], key_type=_GROUP, coordinator_keys=left[:_AT_ONCE])
            response = self.ask_any(request)
            # Before version 4 a request is of one group.
            answered = [(c.key, c) for c in response.coordinators] or [(left[0], response)]
            for group, coordinator in answered:
                if not coordinator.error_code:
                    self._addresses[coordinator.node_id] = coordinator.host, coordinator.port
                    found[group] = coordinator.node_id
            left = left[len(answered) :]
        return found

    def _asked_metadata(self, request: MetadataRequest | Repeated) -> Any:
        response = self.ask_any(request)
        self._addresses.update({b.node_id: (b.host, b.port) for b in response.brokers})
        return response

    def _connect(self, broker: int) -> Connection:
        if broker == _ANY:
            return self._connect_first()
        if broker not in self._addresses:
            self._asked_metadata(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        if broker not in self._addresses:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker} is not in the cluster")
        return self._connection(*self._addresses[broker])

    def _connect_first(self) -> Connection:
        """A connection to any broker: to one that is known to live, or one of the bootstrap servers."""
        failure: ClientError | None = None
        for host, port in [*parse_servers(self.servers), *self._addresses.values()]:
            try:
                return self._connection(host, port)
            except AuthenticationError:
                raise
            except ClientError as error:
                failure = error
        assert failure is not None
        raise failure

    def _connection(self, host: str, port: int) -> Connection:
        return Connection(host, port, self._timeout, client_id="barnabas-console", security=self._security)

    def _drop(self, broker: int) -> None:
        self._connections.pop(broker).close()


_ANY = -1


def _asked(connection: Connection, request: Request | Repeated) -> Any:
    if isinstance(request, Repeated):
        connection.send_again(request)
        return connection.receive_again(request)
    return connection.ask(request)


def rest(fresh_s: float, took_s: float, most_s: float) -> float:
    """How long an answer is shared: slow requests may take a tenth of the time at most."""
    return min(max(fresh_s, 9 * took_s), max(fresh_s, most_s))


def said(error: BarnabasError) -> str:
    """An error's text for people: without the code's name, which is for programs."""
    return error.message if isinstance(error, KafkaError) else str(error)


def check(code: int, about: str) -> None:
    """Raises KafkaError when a response has an error."""
    if code:
        known = error_code(code)
        raise KafkaError(known, f"{about}: {known.doc}")
