"""Errors on the client's side, in one line with its cure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.base.errors import BarnabasError, ErrorCode, KafkaError


class ClientError(BarnabasError):
    """A client's operation failed: no broker answers, a file is missing, a wait was too long."""


class SettingError(ClientError):
    """A client's setting is unknown, or its value is not allowed."""


class UnreachableError(ClientError):
    """No broker answers. The text ends where a caller can add how to name another one."""


class AuthenticationError(ClientError):
    """A client and a broker do not trust each other: to try again does not help."""


#: librdkafka's own codes (below -1) that a user meets, with words of ours.
_LOCAL = {
    "_TRANSPORT": "the connection to the broker broke",
    "_RESOLVE": "the broker's host name cannot be resolved",
    "_ALL_BROKERS_DOWN": "no broker answers",
    "_TIMED_OUT": "the broker did not answer in time",
    "_MSG_TIMED_OUT": "the record could not be delivered in time",
    "_DESTROY_BROKER": "the broker that was asked has left the cluster: try again",
    "_UNKNOWN_TOPIC": "there is no such topic",
    "_UNKNOWN_PARTITION": "there is no such partition",
    "_AUTHENTICATION": "the broker refused the credentials",
}

_BY_CODE = {int(code): code for code in ErrorCode}


def error_code(number: int) -> ErrorCode:
    """Return the code that a response has; one that is not known is UNKNOWN_SERVER_ERROR."""
    return _BY_CODE.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)


def check_code(code: int, message: str | None = None) -> None:
    """Raise KafkaError unless the code of a response is 0; `message` is the broker's."""
    if code:
        raise KafkaError(error_code(code), message)


def said(error: BarnabasError) -> str:
    """The text of an error for people: without the code's name, which is for programs."""
    return error.message if isinstance(error, KafkaError) else str(error)


def translate(error: Any, about: str = "") -> BarnabasError:
    """A confluent_kafka KafkaError or KafkaException as ours: `KafkaError` when a broker gave the code.

    `about` says what it concerns, and begins the text.
    """
    about = f"{about}: " if about else ""
    if isinstance(error, Exception) and error.args:
        error = error.args[0]
    if not hasattr(error, "code"):
        return ClientError(f"{about}{error}")
    code = error.code()
    words = error.str()
    if code >= -1:
        known = _BY_CODE.get(code)
        if known is None:
            return ClientError(about + words)
        if words.startswith("Broker: "):  # librdkafka's stock phrase for the code: ours says more
            words = known.doc
        return KafkaError(known, about + words)
    return ClientError(about + _LOCAL.get(error.name(), words))


def unreachable(bootstrap_servers: str, reasons: Sequence[str] = ()) -> UnreachableError:
    """Return the one message for the commonest failure.

    Args:
        reasons: for each address, the address and why it cannot be used: "127.0.0.1:1: connection refused".
    """
    if len(reasons) == 1:  # the address has been said
        reasons = [reasons[0].removeprefix(f"{bootstrap_servers}: ")]
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return UnreachableError(
        f"no broker answers at {bootstrap_servers}{why}: start one with `barnabas start`, or name another"
    )
