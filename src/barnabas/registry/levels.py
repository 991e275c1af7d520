"""Compatibility levels and modes, with their names in requests and records."""

from __future__ import annotations

from enum import StrEnum


class Level(StrEnum):
    """Compatibility levels.

    A new version is compared with the previous one or, if transitive, with all earlier versions.
    """

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def transitive(self) -> bool:
        return self.name.endswith("_TRANSITIVE")

    @property
    def backward(self) -> bool:
        """Whether new schemas must be able to read old data."""
        return self.name.startswith(("BACKWARD", "FULL"))

    @property
    def forward(self) -> bool:
        """Whether old schemas must be able to read new data."""
        return self.name.startswith(("FORWARD", "FULL"))


class Mode(StrEnum):
    """Modes of a registry or a subject: whether it accepts changes.

    READONLY_OVERRIDE makes the whole registry read-only, whatever the modes of its subjects are. IMPORT
    accepts only schemas with given ids, for a copy of another registry.
    """

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"
