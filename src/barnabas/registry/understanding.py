"""Parses and compares schemas for the event loop, with a cache and worker processes (`workers.py`).

Each function raises NotComputed if the cache has no result yet. It raises RegistryError (422) if the schema
is invalid or exceeds a limit of `limits.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.registry.computed import Computed
from barnabas.registry.worker import Source
from barnabas.registry.workers import WORKERS

#: characters of the cached answers, the most recently used
_KEPT = 16 << 20
#: weight of an answer without its texts
_OVERHEAD = 500

_answers: Computed[Any] = Computed(_KEPT)


def canonical(source: Source) -> str:
    """Return the text of a schema in canonical form.

    Raises NotComputed if the cache has no result yet, and RegistryError if the schema is invalid or too
    large.
    """
    text: str = _ask("canonical", source)
    return text


def serialized(source: Source) -> str | None:
    """Return a schema in the format ``serialized``; None if its type does not have that format.

    Only Protobuf has this format: the FileDescriptorProto in base64. Raises NotComputed if no worker process
    has computed this result yet, and RegistryError if the schema is invalid or too large.
    """
    text: str | None = _ask("serialized", source)
    return text


def first_conflict(
    new: Source, olds: Sequence[Source], *, backward: bool, forward: bool
) -> tuple[int, list[str]] | None:
    """Return the index of the first of `olds` with which `new` is not compatible, and the reasons.

    Return None if `new` is compatible with all. With `backward`, `new` must read data of the old schemas.
    With `forward`, the old schemas must read data of `new`. Raises NotComputed if no worker process has
    computed this result yet, and RegistryError if a schema is invalid or the comparison exceeds a limit.
    """
    question = ("first_conflict", new, tuple(olds), backward, forward)

    def compute(deadline: float) -> tuple[int, list[str]] | None:
        for number, old in enumerate(olds):
            found = WORKERS.run(deadline, "conflicts", new, old, backward, forward)
            if found:
                return number, found
        return None

    # The texts of registered versions are in memory anyway.
    conflict: tuple[int, list[str]] | None
    conflict = _answers(question, new.length + _OVERHEAD * (1 + len(olds)), compute)
    return conflict


def _ask(job: str, source: Source) -> Any:
    return _answers(
        (job, source), 2 * source.length + _OVERHEAD, lambda deadline: WORKERS.run(deadline, job, source)
    )
