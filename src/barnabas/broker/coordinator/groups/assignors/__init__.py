"""Server-side assignors of the consumer protocol (KIP-848): they decide which member gets a partition."""

from collections.abc import Mapping

from barnabas.broker.coordinator.groups.assignors import range as range_assignor
from barnabas.broker.coordinator.groups.assignors import uniform
from barnabas.broker.coordinator.groups.assignors.spec import Assignment, Assignor, MemberSpec, TopicSpec

#: the assignors by the name that clients request (group.remote.assignor)
ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform.assign, "range": range_assignor.assign}

__all__ = ["ASSIGNORS", "Assignment", "Assignor", "MemberSpec", "TopicSpec"]
