"""Errors of clients, each in one line with a hint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.base.errors import BarnabasError, ErrorCode, KafkaError


class ClientError(BarnabasError):
    """An operation of a client failed, for example because no broker answers or a file is missing."""


class SettingError(ClientError):
    """A client's setting is unknown, or its value is not allowed."""


class UnreachableError(ClientError):
    """No broker answers at the given addresses. The `barnabas` command adds how to give other addresses."""


class AuthenticationError(ClientError):
    """The client rejects the broker, or the broker rejects the client. A retry does not help."""


#: Our texts for those of librdkafka's own codes (below -1) that users meet.
_LOCAL = {
    "_TRANSPORT": "the connection to the broker broke",
    "_RESOLVE": "the broker's host name cannot be resolved",
    "_ALL_BROKERS_DOWN": "no broker answers",
    "_TIMED_OUT": "the broker did not answer in time",
    "_MSG_TIMED_OUT": "the record could not be delivered in time",
    "_DESTROY_BROKER": "the broker that was asked has left the cluster: try again",
    "_UNKNOWN_TOPIC": "there is no such topic",
    "_UNKNOWN_PARTITION": "there is no such partition",
    "_AUTHENTICATION": "the broker rejected the credentials",
}

_BY_CODE = {int(code): code for code in ErrorCode}


def error_code(number: int) -> ErrorCode:
    """Return the error code with this number; UNKNOWN_SERVER_ERROR for an unknown number."""
    return _BY_CODE.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)


def check_code(code: int, message: str | None = None) -> None:
    """Raise KafkaError unless the code in a response is 0. `message` is the broker's text."""
    if code:
        raise KafkaError(error_code(code), message)


def error_text(error: BarnabasError) -> str:
    """Return the text of an error for people, without the name of the code."""
    return error.message if isinstance(error, KafkaError) else str(error)


def translate(error: Any, about: str = "") -> BarnabasError:
    """Convert an error of confluent_kafka to an exception of Barnabas.

    The result is a `KafkaError` if a broker sent the error code and `ErrorCode` has it. For an error of
    librdkafka itself, or an unknown code, it is a `ClientError`. `about`, the subject of the request, begins
    the text.
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
    """Return the error for a cluster of which no broker answers at `bootstrap_servers`.

    Args:
        reasons: for each address, the address and the reason: "127.0.0.1:1: connection refused".
    """
    if len(reasons) == 1:  # the address has been said
        reasons = [reasons[0].removeprefix(f"{bootstrap_servers}: ")]
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return UnreachableError(
        f"no broker answers at {bootstrap_servers}{why}: start one with `barnabas start`, or name another"
    )
