"""Compatibility levels and modes, by the names that requests and records have for them."""

from __future__ import annotations

from enum import StrEnum


class Level(StrEnum):
    """What a new version must be, towards the one before it, or (transitive) towards all."""

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
        """Whether new readers must understand old data."""
        return self.name.startswith(("BACKWARD", "FULL"))

    @property
    def forward(self) -> bool:
        """Whether old readers must understand new data."""
        return self.name.startswith(("FORWARD", "FULL"))


class Mode(StrEnum):
    """What may be done; IMPORT takes schemas with their ids, to copy another registry."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"
