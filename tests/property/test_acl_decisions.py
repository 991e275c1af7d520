"""The decisions of the authorizer, which uses indexes and a cache, agree with a
simple search of all rules.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.kafka.security.acls import (
    SUPPORTED_OPERATIONS,
    AclBinding,
    AclEntry,
    AclFilter,
    Acls,
    Authorizer,
    Operation,
    PatternRules,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    SubjectRules,
)
from barnabas.kafka.security.principal import Principal

TYPES = [ResourceType.TOPIC, ResourceType.GROUP]
NAMES = ["a", "ab", "abc", "b", "*", "*x"]
PRINCIPALS = ["User:alice", "User:bob", "User:*"]
HOSTS = ["*", "10.0.0.1", "0:0:0:0:0:0:0:1"]
OPERATIONS = [operation for operation in Operation if operation is not Operation.ANY]

resources = st.builds(
    ResourcePattern,
    st.sampled_from(TYPES),
    st.sampled_from(NAMES),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
)
entries = st.builds(
    AclEntry,
    st.sampled_from(PRINCIPALS),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
    st.sampled_from(OPERATIONS),
    st.sampled_from(HOSTS),
)
rule_lists = st.lists(st.builds(AclBinding, resources, entries), max_size=12)
questions = st.tuples(
    st.sampled_from(["alice", "bob", "carol", "root"]),
    st.sampled_from(["10.0.0.1", "::ffff:10.0.0.1", "::1", "10.0.0.2"]),
    st.sampled_from(OPERATIONS),
    st.sampled_from(TYPES),
    st.sampled_from([*NAMES, "abcd", "c"]),
)
SUPER = frozenset({"User:root"})
SAME_HOST = {"10.0.0.1": "10.0.0.1", "::ffff:10.0.0.1": "10.0.0.1", "::1": "0:0:0:0:0:0:0:1"}


def is_about(rule: AclBinding, kind: ResourceType, name: str) -> bool:
    pattern = rule.resource
    if pattern.type is not kind:
        return False
    if pattern.pattern is PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in ("*", name)


def naive(rules, everyone, user, host, operation, kind, name) -> bool:
    if f"User:{user}" in SUPER:
        return True
    about = [rule for rule in rules if is_about(rule, kind, name)]
    if not about and everyone:
        return True
    mine = [
        entry
        for _, entry in about
        if entry.principal in ("User:*", f"User:{user}") and entry.host in ("*", SAME_HOST.get(host, host))
    ]
    if any(e.permission is Permission.DENY and e.operation in (operation, Operation.ALL) for e in mine):
        return False
    enough = {operation, Operation.ALL}
    if operation is Operation.DESCRIBE:
        enough |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    if operation is Operation.DESCRIBE_CONFIGS:
        enough.add(Operation.ALTER_CONFIGS)
    return any(e.permission is Permission.ALLOW and e.operation in enough for e in mine)


@given(before=rule_lists, after=rule_lists, everyone=st.booleans(), asked=st.lists(questions, max_size=10))
def test_a_decision_is_that_of_all_rules_read_one_by_one_also_after_they_have_changed(
    before, after, everyone, asked
):
    acls = Acls.of(before)
    authorizer = Authorizer(lambda: acls, SubjectRules(SUPER, everyone))
    for rules in (before, after):
        for user, host, operation, kind, name in asked * 2:
            access = authorizer.access(Principal(user), host)
            expected = naive(rules, everyone, user, host, operation, kind, name)
            assert access.allows(operation, kind, name) is expected
            bits = sum(
                1 << each
                for each in SUPPORTED_OPERATIONS[kind]
                if naive(rules, everyone, user, host, each, kind, name)
            )
            assert access.operations(kind, name) == bits
        changed = {rule.resource: None for rule in before}
        acls = acls.changed({**changed, **Acls.of(after).rules})
        assert acls.rules == Acls.of(after).rules
        for user in ("User:alice", "User:*", "User:carol"):
            assert dict(acls.naming(user)) == dict(Acls.of(after).naming(user))


@given(rules=rule_lists, everyone=st.booleans(), asked=questions)
def test_any_resource_of_a_type_is_allowed_where_some_resource_is_by_its_own_operation(
    rules, everyone, asked
):
    user, host, operation, kind, _ = asked
    acls = Acls.of(rules)
    access = Authorizer(lambda: acls, SubjectRules(SUPER, everyone)).access(Principal(user), host)
    # every name that rules tell apart: their own, and a continuation that no rule names
    named = {rule.resource.name for rule in rules}
    possible = [*named - {"*"}, *(name + "~" for name in named), "~", "hardcode"]
    # implications do not count here (KIP-679)
    own = [rule for rule in rules if rule.entry.operation in (operation, Operation.ALL)]
    some = any(naive(own, False, user, host, operation, kind, name) for name in possible)
    alone = naive(rules, everyone, user, host, operation, kind, "hardcode")
    assert access.allows_any(operation, kind) is (some or alone)


@given(rules=rule_lists, name=st.none() | st.sampled_from(NAMES), pattern=st.sampled_from(PatternType))
def test_a_filter_that_names_one_resource_pattern_selects_that_one_only(rules, name, pattern):
    chosen = AclFilter(ResourceType.TOPIC, name, pattern)
    selected = {resource for resource, _ in rules if chosen.selects_resource(resource)}
    if chosen.exact is not None:
        assert selected <= {chosen.exact}
    if pattern is PatternType.MATCH and name is not None:
        assert selected == {rule.resource for rule in rules if is_about(rule, ResourceType.TOPIC, name)}


def test_rules_of_a_pattern_are_kept_once_and_in_order():
    first = AclEntry("User:a", Permission.ALLOW, Operation.READ)
    second = AclEntry("User:b", Permission.DENY, Operation.READ)
    assert PatternRules([first, second, first]).entries == (first, second)
