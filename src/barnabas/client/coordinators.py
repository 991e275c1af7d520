"""Asking a group's coordinator, whichever broker that is by now.

It is asked in the protocol itself. librdkafka's admin client (2.16) remembers a group's coordinator: once
that broker has died, each call about the group times out, and an assertion may end the whole process when
the client is closed (librdkafka issue 5511, pull request 5397).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from barnabas.client.addresses import Address, parse_servers
from barnabas.client.connection import CLIENT_ID, Connection, UnservedError
from barnabas.client.errors import AuthenticationError, ClientError, error_code
from barnabas.client.reach import explain_silence
from barnabas.client.servers import Servers
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.types import BrokerId

T = TypeVar("T")

#: with these an answer says that another broker coordinates the group, or that this one will in a moment
_PASSING = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
#: Seconds that a broker has to answer before the group's coordinator is looked up again.
_PATIENCE = 5.0
#: seconds between two tries: at first, and at most
_RETRY_S, _LONGEST_RETRY_S = 0.05, 1.0


class Coordinators:
    """Calls about groups, from any thread. Connections are kept, one for each broker.

    Args:
        timeout: seconds for each call, with all of its tries.
    """

    def __init__(self, servers: Servers, timeout: float) -> None:
        self._servers = servers
        self._timeout = timeout
        self._bootstrap = parse_servers(servers)
        #: the brokers that the cluster had when it was asked last; those that did not answer come last
        self._brokers: list[Address] = []
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

    def ask(self, group: str, call: Callable[[Connection, BrokerId], T]) -> T:
        """What `call` returns, given a connection to the group's coordinator and that broker's id.

        It is called again when the connection breaks, the broker does not answer in time, or it does not
        coordinate the group any more. So it must do no harm when it is done twice.

        Raises:
            KafkaError: a broker refused.
            ClientError: no coordinator answers within `timeout` seconds.
        """
        deadline = time.monotonic() + self._timeout
        pause = _RETRY_S
        while True:
            try:
                return self._try(group, call, deadline)
            except (AuthenticationError, UnservedError):
                raise
            except KafkaError as error:
                if error.code not in _PASSING or time.monotonic() + pause > deadline:
                    raise
            except ClientError:
                if time.monotonic() + pause > deadline:
                    raise explain_silence(self._servers, self._timeout) from None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_RETRY_S)

    def _try(self, group: str, call: Callable[[Connection, BrokerId], T], deadline: float) -> T:
        node_id, address = self._find(group, deadline)
        return self._with(address, deadline, lambda connection: call(connection, node_id))

    def _find(self, group: str, deadline: float) -> tuple[BrokerId, Address]:
        """The coordinator, as the first broker says that answers. Raises KafkaError and ClientError."""
        request = FindCoordinatorRequest(key=group, coordinator_keys=[group])
        failed: ClientError | None = None
        for address in self._entries():
            try:
                answer = self._with(address, deadline, lambda connection: connection.ask(request))
            except (AuthenticationError, UnservedError):
                raise
            except ClientError as error:
                failed = error
                self._prefer_others(address)
                continue
            found = answer.coordinators[0] if answer.coordinators else answer
            check(found.error_code, f"the coordinator of {group}")
            return found.node_id, Address(found.host, found.port)
        assert failed is not None
        raise failed

    def _entries(self) -> Iterator[Address]:
        with self._lock:
            known = [*self._brokers, *self._bootstrap]
        yield from dict.fromkeys(known)

    def _prefer_others(self, address: Address) -> None:
        with self._lock:
            if address in self._brokers:
                self._brokers.remove(address)
                self._brokers.append(address)

    def _with(self, address: Address, deadline: float, use: Callable[[Connection], T]) -> T:
        """What `use` returns, given a connection that is kept if all goes well. Raises what `use` raises."""
        left = max(deadline - time.monotonic(), 0.001)
        wait = min(_PATIENCE, max(left / 2, 0.5), left)
        with self._lock:
            connection = self._idle.pop(address, None)
        if connection is None:
            connection = Connection(
                *address,
                wait,
                client_id=self._servers.settings.get("client.id", CLIENT_ID),
                security=self._servers.security,
            )
            is_new = True
        else:
            connection.wait_for(wait)
            is_new = False
        try:
            if is_new:
                self._learn(connection, address)
            answer = use(connection)
        except KafkaError:
            self._keep(address, connection)
            raise
        except BaseException:
            connection.close()
            raise
        self._keep(address, connection)
        return answer

    def _learn(self, connection: Connection, address: Address) -> None:
        """Ask for the brokers of the cluster, for the day when those that were named at first are gone."""
        brokers: Any = connection.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False)).brokers
        with self._lock:
            self._brokers = [address, *(Address(broker.host, broker.port) for broker in brokers)]

    def _keep(self, address: Address, connection: Connection) -> None:
        with self._lock:
            if self._idle.setdefault(address, connection) is connection:
                return
        connection.close()  # another thread has kept one


def check(code: int, about: str, message: str | None = None) -> None:
    """Raise KafkaError, with what it is about, unless `code` is 0."""
    if code:
        known = error_code(code)
        raise KafkaError(known, f"{about}: {message or known.doc}")
