"""The command-line options and the operations for each type of resource in an ACL."""

from __future__ import annotations

from barnabas.kafka.security.acls import SUPPORTED_OPERATIONS, Operation, ResourceType

#: by resource the option that names it
OPTIONS = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
    ResourceType.CLUSTER: "--cluster",
}


#: by resource the operations that a rule can be of
OPERATIONS = {
    kind.name: [*(each.name for each in SUPPORTED_OPERATIONS[kind]), Operation.ALL.name] for kind in OPTIONS
}
