"""One reason why a schema cannot read another schema's data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One reason why a reader's schema cannot read data of a writer's schema.

    `kind` depends on the format, such as TYPE_MISMATCH. `path` is a path in the reader's schema, and `what`
    describes the difference.
    """

    kind: str
    path: str
    what: str

    def __str__(self) -> str:
        return f"{{errorType:'{self.kind}', description:'{self.what}', place:'{self.path}'}}"
