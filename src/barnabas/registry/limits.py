"""Limits on the cost of one request.

The registry rejects a request that exceeds a limit: the error code is 42209. For JSON that is nested too
deeply, the code is 42201 (both HTTP status 422). The message names the limit. Elements, depth and steps are
counted, not timed. So every registry rejects the same schemas, even on a busy machine. A worker's CPU time is
limited for all other costs.
"""

from __future__ import annotations

from barnabas.registry.errors import Code, RegistryError

#: characters of a schema's text: a record of the topic has no room for more (librdkafka's message.max.bytes)
TEXT = 1_000_000
#: JSON values (objects, arrays, strings, numbers, ...) of a schema and all its references
ELEMENTS = 100_000
#: depth of nested objects and arrays
DEPTH = 200
#: references of a schema, direct and indirect, and the characters of their texts
REFERENCES = 500
REFERENCED_TEXT = 4_000_000
#: pairs of parts of two schemas that are compared, or parts of default values that are checked
STEPS = 500_000
#: reported reasons why two schemas are not compatible
REASONS = 100
#: characters of each reason, and of an error message
REASON_LENGTH = 2_000
#: CPU seconds of a worker for one job
CPU_S = 10.0
#: bytes of memory that a worker may have (RLIMIT_DATA), and how much it may have grown before it is replaced
WORKER_MEMORY = 1 << 30
WORKER_GROWTH = 64 << 20
#: JSON values in a body of a request, and their depth; the schema is one string of it
BODY_ELEMENTS = 10_000
BODY_DEPTH = 50


class TooLargeError(RegistryError):
    """A schema or a request exceeds a limit. The message names the limit."""

    def __init__(self, what: str) -> None:
        super().__init__(Code.SCHEMA_TOO_LARGE, f"Schema too large: {what}")


class Steps:
    """Counts the steps of one job, and limits them to `limit`. `job` names it in the error message."""

    def __init__(self, job: str = "comparing it with another version", limit: int = STEPS) -> None:
        self._job = job
        self._limit = limit
        self._left = limit

    def spend(self, steps: int = 1) -> None:
        """Count `steps` more steps. Raises TooLargeError if their sum exceeds the limit."""
        self._left -= steps
        if self._left < 0:
            raise TooLargeError(f"{self._job} takes more than {self._limit:,} steps")


def shortened(text: str, length: int = REASON_LENGTH) -> str:
    """Return `text`, without its middle if it is longer than `length` characters."""
    if len(text) <= length:
        return text
    half = length // 2
    return f"{text[:half]} ... ({len(text) - 2 * half} characters left out) ... {text[-half:]}"
