"""Coordinators: what a broker remembers for clients in internal topics (groups, their offsets)."""

from barnabas.coordinator.groups.service import GroupCoordinator
from barnabas.coordinator.loading import InternalLog

__all__ = ["GroupCoordinator", "InternalLog"]
