"""What schemas mean, for the event loop: remembered here, worked out in a process of its own (`workers.py`).

Each function raises NotComputed when the answer has to be worked out first, and RegistryError (422) when the
schema is invalid or costs more than `limits.py` allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.registry.computed import Computed
from barnabas.registry.worker import Source
from barnabas.registry.workers import WORKERS

#: characters: what was asked for last stays known
_KEPT = 16 << 20
#: what any answer weighs beside its texts
_OVERHEAD = 500

_answers: Computed[Any] = Computed(_KEPT)


def canonical(source: Source) -> str:
    """The one spelling of a schema."""
    text: str = _ask("canonical", source)
    return text


def serialized(source: Source) -> str | None:
    """A schema in the format ``serialized``; None when its type has none."""
    text: str | None = _ask("serialized", source)
    return text


def first_conflict(
    new: Source, olds: Sequence[Source], *, backward: bool, forward: bool
) -> tuple[int, list[str]] | None:
    """The index of the first of `olds` that `new` is not compatible with, and the reasons."""
    question = ("first_conflict", new, tuple(olds), backward, forward)

    def compute(deadline: float) -> tuple[int, list[str]] | None:
        for number, old in enumerate(olds):
            found = WORKERS.run(deadline, "conflicts", new, old, backward, forward)
            if found:
                return number, found
        return None

    # The texts of registered versions are kept anyway.
    conflict: tuple[int, list[str]] | None
    conflict = _answers(question, new.length + _OVERHEAD * (1 + len(olds)), compute)
    return conflict


def _ask(job: str, source: Source) -> Any:
    return _answers(
        (job, source), 2 * source.length + _OVERHEAD, lambda deadline: WORKERS.run(deadline, job, source)
    )
