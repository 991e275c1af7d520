"""Compatibility levels and modes, with their names in requests and records."""

from __future__ import annotations

from enum import StrEnum


class Level(StrEnum):
    """The compatibility of a new version with the previous one, or (transitive) with all earlier ones."""

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
    """The operations that a registry allows.

    IMPORT accepts schemas with their ids, to copy another registry.
    """

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"
