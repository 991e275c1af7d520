"""Encodes a value in a separate process, with limits of time and memory.

Some schemas and values take any amount of time: a pattern that backtracks, or nested choices and defaults. A
thread cannot be stopped, and it would hold the GIL, which an event loop needs.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading

from barnabas.base.errors import BarnabasError
from barnabas.base.system.limits import limit_cpu, limit_memory
from barnabas.base.text import shown
from barnabas.client.errors import ClientError
from barnabas.client.schemas.codec import Encoder
from barnabas.client.schemas.registered import Registered, SchemaError
from barnabas.client.schemas.unfit import UnfitError

#: limits of one value: seconds of processor time, bytes of memory, seconds until the answer
_CPU_S, _MEMORY, _TIMEOUT_S = 5, 512 << 20, 30.0
#: bytes of a payload; brokers take less in one record
_MAX_BYTES = 64 << 20
#: values that are encoded at once, and how long others wait for their turn, in seconds
_free, _TURN_S = threading.BoundedSemaphore(2), 2.0
#: the first byte of the answer
_ENCODED, _UNFIT, _UNUSABLE, _TOO_MUCH = b"e", b"u", b"s", b"m"


def encode_alone(schema: Registered, message: str, text: str, path: str) -> bytes:
    """Return the payload of a JSON text. Blocks until another process has encoded it.

    Args:
        message: name of the Protobuf message to write; the first one if empty.
        path: name of the value in error messages: "value" or "key".

    Raises:
        UnfitError: the text is not JSON, the schema does not allow the value, or encoding exceeds a limit.
        SchemaError: the schema cannot be used.
        ClientError: too many values are being encoded now, or the process has failed.
    """
    job = json.dumps([_CPU_S, _MEMORY, schema, message, path, text]).encode()
    if not _free.acquire(timeout=_TURN_S):
        raise ClientError("too many values are being encoded: try again")
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", __name__],
            input=job,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _too_much(path) from None
    finally:
        _free.release()
    kind, rest = ended.stdout[:1], ended.stdout[1:]
    if ended.returncode < 0 or kind == _TOO_MUCH:
        raise _too_much(path)
    if ended.returncode > 0 or kind not in (_ENCODED, _UNFIT, _UNUSABLE):
        last = ended.stderr.decode(errors="replace").rstrip().rpartition("\n")[2]
        raise ClientError(f"{path}: the process that encodes it has failed: {shown(last)}")
    if kind == _ENCODED:
        return rest
    raise (UnfitError if kind == _UNFIT else SchemaError)(rest.decode())


def _too_much(path: str) -> UnfitError:
    return UnfitError(
        f"{path}: to encode it takes more than {_CPU_S} s of processor time or {_MEMORY >> 20} MiB of memory"
    )


def _answer(schema: Registered, message: str, path: str, text: str) -> bytes:
    try:
        data = Encoder(schema, message, path).encode_text(text)
        if len(data) > _MAX_BYTES:
            raise UnfitError(f"{path}: it takes more than {_MAX_BYTES:,} bytes")
        return _ENCODED + data
    except MemoryError:
        return _TOO_MUCH
    except UnfitError as error:
        return _failure(_UNFIT, error)
    except BarnabasError as error:
        return _failure(_UNUSABLE, error)


def _failure(kind: bytes, error: BarnabasError) -> bytes:
    return kind + str(error).encode(errors="backslashreplace")


def _main() -> None:
    cpu_s, memory, (id_, kind, own, references), message, path, text = json.load(sys.stdin.buffer)
    with contextlib.suppress(ValueError, OSError):  # the platform or the operator allows less
        limit_memory(memory)
        limit_cpu(cpu_s)
    schema = Registered(id_, kind, own, tuple((name, each) for name, each in references))
    sys.stdout.buffer.write(_answer(schema, message, path, text))


if __name__ == "__main__":
    _main()
