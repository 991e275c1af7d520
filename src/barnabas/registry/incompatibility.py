"""One reason why a schema cannot read another schema's data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """The reason.

    `kind` is specific to the format, such as TYPE_MISMATCH. `place` is a path in the reader's schema.
    """

    kind: str
    place: str
    what: str

    def __str__(self) -> str:
        return f"{{errorType:'{self.kind}', description:'{self.what}', place:'{self.place}'}}"
