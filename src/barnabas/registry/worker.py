"""The process that parses and compares schemas for a registry.

Parsing a schema may take any amount of time and memory, despite all limits on its size. Python's threads
cannot be stopped, and they share the GIL with the event loops of the registry and of a broker in the same
process. So a separate process does this work, with limits that the operating system enforces. The process
ends when the other end of its connection is closed.
"""

from __future__ import annotations

import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from barnabas.base.system.limits import limit_memory, memory_held, on_cpu_timer, set_cpu_timer
from barnabas.registry import document, limits
from barnabas.registry.errors import Code, InvalidSchemaError, RegistryError
from barnabas.registry.formats import Parsed, parse
from barnabas.registry.limits import TooLargeError, shortened
from barnabas.registry.schema import Schema

logger = logging.getLogger(__name__)

#: seconds between interruptions of a job that does not end at the first one
_AGAIN_S = 0.1
#: read schemas that are kept: how many, and characters of their texts
_KEPT, _KEPT_TEXT = 1024, 2_000_000


class Source(NamedTuple):
    """A schema with all of its references.

    `references` has pairs of name and text. Each schema comes after the schemas that it refers to. With
    `normalize`, parts of the schema's canonical text whose order has no meaning are sorted. With `is_new`,
    the default values of Avro fields are checked.
    """

    type: str
    text: str
    references: tuple[tuple[str, str], ...] = ()
    normalize: bool = False
    is_new: bool = False

    @property
    def length(self) -> int:
        """Return the number of characters of the schema and its references."""
        return len(self.text) + sum(len(text) for _, text in self.references)


class Reply(NamedTuple):
    """The reply to a job: `value`, or the code and the message of a RegistryError.

    `code` is 0 if there is no error. If `retires` is true, the worker ends after this reply.
    """

    value: Any = None
    code: int = 0
    message: str = ""
    #: the worker ends after this answer
    retires: bool = False


class _OutOfTimeError(BaseException):
    """A job has reached the limit of CPU time.

    The class is not an Exception, so that no library catches it as its own error.
    """


class _Kept:
    """A cache of parsed schemas. It keeps the most recently used ones."""

    def __init__(self) -> None:
        self._parsed: OrderedDict[Source, Parsed] = OrderedDict()
        self._length = 0

    def read(self, source: Source) -> Parsed:
        if source in self._parsed:
            self._parsed.move_to_end(source)
            return self._parsed[source]
        if source.length > limits.TEXT + limits.REFERENCED_TEXT:
            raise TooLargeError(f"it has more than {limits.TEXT + limits.REFERENCED_TEXT:,} characters")
        schema = Schema(source.type, source.text)
        parsed = parse(schema, source.references, normalize=source.normalize, is_new=source.is_new)
        self._check_text(parsed.text)
        self._parsed[source] = parsed
        self._length += source.length
        while len(self._parsed) > _KEPT or (self._length > _KEPT_TEXT and len(self._parsed) > 1):
            self._length -= self._parsed.popitem(last=False)[0].length
        return parsed

    @staticmethod
    def _check_text(text: str) -> None:
        if len(text) > limits.TEXT:
            raise TooLargeError(f"written out it has more than {limits.TEXT:,} characters")
        try:
            document.encoded(text)
        except ValueError as error:
            raise InvalidSchemaError(str(error)) from None


_kept = _Kept()


def canonical(source: Source) -> str:
    """Return the text of the schema in canonical form.

    Raises RegistryError if the schema is invalid or too large, or protoc fails. Raises RecursionError if the
    schema is nested too deeply.
    """
    return _kept.read(source).text


def serialized(source: Source) -> str | None:
    """Return the schema in the format ``serialized``; None if its type does not have that format.

    Only Protobuf has this format: the FileDescriptorProto in base64. Raises RegistryError if the schema is
    invalid or too large, or protoc fails. Raises RecursionError if the schema is nested too deeply.
    """
    return getattr(_kept.read(source), "serialized", None)


def conflicts(new: Source, old: Source, backward: bool, forward: bool) -> list[str]:
    """Return reasons why two schemas are not compatible, at most `limits.REASONS`.

    The list is empty if the schemas are compatible.

    With `backward`, `new` must read data of `old`. With `forward`, `old` must read data of `new`. Raises
    RegistryError if a schema is invalid or too large, protoc fails, or the comparison takes too many steps.
    Raises RecursionError if a schema is nested too deeply.
    """
    if new.type != old.type:
        return [f"{{errorType:'TYPE_CHANGED', description:'{old.type} became {new.type}'}}"]
    one, other = _kept.read(new), _kept.read(old)
    found = []
    if backward:
        found += one.cannot_read(other)
    if forward:
        found += other.cannot_read(one)
    return [shortened(str(reason)) for reason in found[: limits.REASONS]]


def body(data: bytes) -> dict[str, Any]:
    """Decode the JSON object in the body of a request.

    Raises RegistryError: 400, the body is not a JSON object; TooLargeError or InvalidSchemaError (both HTTP
    status 422), the body exceeds a limit.
    """
    try:
        return document.body(data)
    except ValueError as error:
        raise RegistryError(400, f"the body is not JSON: {error}") from None


JOBS: dict[str, Callable[..., Any]] = {
    function.__name__: function for function in (canonical, serialized, conflicts, body)
}


def serve(connection: Connection) -> None:
    """Receive jobs and send replies until the other end of the connection is closed.

    A job is a name from `JOBS` with arguments. The worker also ends after a job that leaves too much memory
    in use.
    """
    on_cpu_timer(_interrupt)
    with contextlib.suppress(ValueError, OSError):  # the platform or the operator allows less
        limit_memory(limits.WORKER_MEMORY)
    before = memory_held()
    while True:
        try:
            name, *arguments = connection.recv()
        except EOFError:
            return
        reply = answer(name, *arguments)
        retires = reply.retires or memory_held() > before + limits.WORKER_GROWTH
        connection.send(reply._replace(retires=retires))
        if retires:
            return


def answer(name: str, *arguments: Any) -> Reply:
    """Do one job within the limits of time and memory. Errors become replies."""
    try:
        try:
            set_cpu_timer(limits.CPU_S, _AGAIN_S)
            return Reply(JOBS[name](*arguments))
        finally:
            set_cpu_timer(0)
    except RegistryError as error:
        return Reply(code=error.code, message=shortened(str(error)))
    except RecursionError:
        too_deep = InvalidSchemaError("it is nested too deeply")
        return Reply(code=too_deep.code, message=str(too_deep))
    except MemoryError:
        return _too_large("it takes too much memory to read")._replace(retires=True)
    except _OutOfTimeError:
        words = f"reading or comparing it takes more than {limits.CPU_S:g} s of processor time"
        return _too_large(words)._replace(retires=True)
    except Exception as error:
        logger.exception("job %s failed", name)
        return Reply(code=Code.STORE_ERROR, message=f"{name} failed: {shortened(repr(error), 200)}")


def _too_large(what: str) -> Reply:
    error = TooLargeError(what)
    return Reply(code=error.code, message=str(error))


def _interrupt() -> None:
    raise _OutOfTimeError
