"""Records what a program sees of its Kafka client: results, exceptions and waits."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import inspect
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition, Uuid

#: a user notices such a difference of waits, in seconds; a busy machine makes smaller ones
SLOW_SECONDS = 3.0
#: a time of the broker, in ms, is compared as "now" if it is at most this far from the program's clock
_NOW_MS = 600_000
# What each broker or client makes up: ids of members, topics and clusters.
_MADE_UP = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"""|^(?![A-Z_]+$)[\w+/-]{22}$|(?<=['"])[\w-]{22}(?=['"])"""
)
# Times and object ids in a client's texts.
_SECONDS = re.compile(r"\d+\.\d+(?= ?s| sec)|(?<=0x)[0-9a-f]+|(?<=client-)\d+|(?<=python-)\d+")
# A broker's own words, its own settings and features, and numbers that it makes up.
_OWN = frozenset({
    "error_message", "configs", "config_synonyms", "synonyms", "documentation", "cluster_id",
    "finalized_epoch", "producer_id", "transaction_start_time_ms", "total_bytes", "usable_bytes", "log_dir",
    "base_offset",
})  # fmt: skip
# The client's name of an error code; a broker's own words can follow.
_CODE = re.compile(r"(\[Error \d+\] \w+).*", re.DOTALL)


class Trace:
    """The steps of one program with one broker.

    Args:
        addresses: the broker's addresses by security protocol, as host:port.
        prefix: start of all names of the program; new in both brokers.
    """

    def __init__(self, addresses: Mapping[str, str], prefix: str) -> None:
        self.addresses = addresses
        self.bootstrap = addresses["PLAINTEXT"]
        self._ports = {address.rpartition(":")[2] for address in addresses.values()}
        self._prefix = prefix
        #: each step's label with what the program sees
        self.steps: list[tuple[str, Any]] = []
        #: the same steps' times, in seconds
        self.seconds: list[float] = []

    def name(self, suffix: str) -> str:
        """Return a name that is new in this broker, and the same for the other broker."""
        return f"{self._prefix}-{suffix}"

    def call(self, label: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call `function`, and record its result or exception. Return the result; None for an exception."""
        started = time.monotonic()
        try:
            result = function(*args, **options)
        except Exception as error:
            self._record(label, error, started)
            return None
        self._record(label, result, started)
        return result

    def call_until(
        self,
        label: str,
        reached: Callable[[Any], object],
        function: Callable[..., Any],
        *args: Any,
        **options: Any,
    ) -> Any:
        """Call `function` until its result is as expected, or for 20 s. Then call it once more, as `call`.

        Kafka answers a change before its brokers know it.
        """
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                if reached(function(*args, **options)):
                    break
            except Exception:  # the last call records it
                pass
            time.sleep(0.1)
        return self.call(label, function, *args, **options)

    async def wait(self, label: str, awaitable: Awaitable[Any], at_most: float = 12) -> Any:
        """Await, and record the result or the exception. Return the result; None for an exception."""
        started = time.monotonic()
        try:
            result = await asyncio.wait_for(awaitable, at_most)
        except Exception as error:
            self._record(label, error, started)
            return None
        self._record(label, result, started)
        return result

    def note(self, label: str, value: object) -> None:
        """Record a value that the program has computed."""
        self._record(label, value, time.monotonic())

    def _record(self, label: str, seen: object, started: float) -> None:
        self.steps.append((label, self.plain(seen)))
        self.seconds.append(time.monotonic() - started)

    def plain(self, value: Any, depth: int = 0) -> Any:
        """Return `value` as texts, numbers, lists and dicts, without what each broker makes up."""
        if depth > 12:
            return "..."
        deeper = depth + 1
        value = _fields_of_confluent_kafka(value)
        if isinstance(value, BaseException):
            return {
                "raises": type(value).__name__,
                "text": self._text(str(value)),
                "retriable": getattr(value, "retriable", None),
            }
        if isinstance(value, enum.Enum):
            return str(value)
        if value is None or isinstance(value, (bool, float)):
            return value
        if isinstance(value, int):
            if abs(value - time.time() * 1000) < _NOW_MS:
                return "now"
            return "PORT" if str(value) in self._ports else value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return repr(bytes(value))
        if isinstance(value, Mapping):
            return {
                self._text(str(self.plain(key, deeper))): self.plain(each, deeper)
                for key, each in value.items()
                if key not in _OWN
            }
        if isinstance(value, (set, frozenset)):
            return sorted((self.plain(each, deeper) for each in value), key=repr)
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            return self.plain(value._asdict(), deeper)
        if isinstance(value, (list, tuple)):
            items = [self.plain(each, deeper) for each in value]
            has_any_order = items and isinstance(items[0], dict) and "error_code" in items[0]
            return sorted(items, key=repr) if has_any_order else items
        if dataclasses.is_dataclass(value):
            fields = [each.name for each in dataclasses.fields(value) if not each.name.startswith("_")]
            return {name: self.plain(getattr(value, name), deeper) for name in fields}
        if inspect.isroutine(value) or inspect.isclass(value):
            return getattr(value, "__name__", "function")
        if hasattr(value, "to_object"):
            return self.plain(value.to_object(), deeper)
        fields = {name: each for name, each in getattr(value, "__dict__", {}).items() if name[0] != "_"}
        return self.plain(fields, deeper) if fields else self._text(repr(value))

    def _text(self, text: str) -> str:
        for port in self._ports:
            text = text.replace(port, "PORT")
        text = _MADE_UP.sub("ID", text)
        return _SECONDS.sub("N", _CODE.sub(r"\1", text))


def _fields_of_confluent_kafka(value: Any) -> Any:
    """Return the fields of a value that librdkafka has made, without error texts. Wait for a future."""
    if isinstance(value, Future):
        value = value.exception(60) or value.result()
    if isinstance(value, KafkaException) and value.args and isinstance(value.args[0], KafkaError):
        return {"raises": "KafkaException", **_fields_of_confluent_kafka(value.args[0])}
    if isinstance(value, KafkaError):
        return {
            "error": value.name(),
            "retriable": value.retriable(),
            "fatal": value.fatal(),
            "transaction": value.txn_requires_abort(),
        }
    if isinstance(value, Uuid):
        return "ID"
    if isinstance(value, TopicPartition):
        names = ("topic", "partition", "offset", "metadata", "leader_epoch", "error")
        return {name: getattr(value, name) for name in names}
    if isinstance(value, Message):
        names = ("topic", "partition", "offset", "leader_epoch", "timestamp", "key", "headers")
        fields = {name: getattr(value, name)() for name in names}
        # the value of an event is the text of its error
        return {**fields, "error": value.error()} if value.error() else {**fields, "value": value.value()}
    return value


#: a program: a function, or a coroutine function, of its trace
Program = Callable[[Trace], Any]


def run(program: Program, addresses: Mapping[str, str], prefix: str) -> Trace:
    """Run a program with the broker at these addresses, by security protocol."""
    trace = Trace(addresses, prefix)
    result = program(trace)
    if inspect.iscoroutine(result):
        asyncio.run(result)
    return trace


def differences(mine: Trace, theirs: Trace) -> list[str]:
    """Return the steps in which the program sees something else, one a line."""
    found = [
        f"{label}: we {ours!r}, Kafka {kafkas!r}" if label == other else f"we {label}, Kafka {other}"
        for (label, ours), (other, kafkas) in zip(mine.steps, theirs.steps, strict=False)
        if (label, ours) != (other, kafkas)
    ]
    if len(mine.steps) != len(theirs.steps):
        found.append(f"we take {len(mine.steps)} steps, Kafka {len(theirs.steps)}")
    return found


def slow(mine: Trace, theirs: Trace) -> list[str]:
    """Return the steps in which the program waits much longer with Barnabas, one a line."""
    return [
        f"{label}: we {ours:.1f} s, Kafka {kafkas:.1f} s"
        for (label, _), ours, kafkas in zip(mine.steps, mine.seconds, theirs.seconds, strict=False)
        if ours - kafkas > SLOW_SECONDS
    ]
