"""Access control lists, without I/O (KIP-11, KIP-290)."""

from barnabas.kafka.security.acls.acls import Acls, PatternRules
from barnabas.kafka.security.acls.authorizer import UNRESTRICTED, Access, Authorizer
from barnabas.kafka.security.acls.decision import Decision, Reason, SubjectRules, decide
from barnabas.kafka.security.acls.model import (
    ANY_HOST,
    ANY_NAME,
    ANY_PRINCIPAL,
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    canonical_host,
)

__all__ = [
    "ANY_HOST",
    "ANY_NAME",
    "ANY_PRINCIPAL",
    "CLUSTER_NAME",
    "SUPPORTED_OPERATIONS",
    "UNRESTRICTED",
    "Access",
    "AclBinding",
    "AclEntry",
    "AclFilter",
    "Acls",
    "Authorizer",
    "Decision",
    "Operation",
    "PatternRules",
    "PatternType",
    "Permission",
    "Reason",
    "ResourcePattern",
    "ResourceType",
    "SubjectRules",
    "canonical_host",
    "decide",
]
