"""`barnabas acls`: access control lists, for brokers with an authorizer."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from barnabas.cli.options import (
    NAME,
    TIMEOUT,
    bootstrap_option,
    connect,
    example,
    json_option,
    options,
)
from barnabas.cli.output import print_listing
from barnabas.cli.streams import report
from barnabas.kafka.security.acls import (
    ANY_HOST,
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclBinding,
    AclEntry,
    AclFilter,
    Acls,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    SubjectRules,
    decide,
)

#: by option: the type of resource that it names
_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}


@click.group()
def acls() -> None:
    """Access control lists: list, add and remove rules."""


#: the resource of a rule
_resource_options = options(
    *(
        click.option(f"--{field.replace('_', '-')}", type=NAME, help=f"This {words}; * for every {words}.")
        for field in _RESOURCES
        for words in [field.replace("_", " ")]
    ),
    click.option("--cluster", is_flag=True, help="The cluster itself."),
)
_prefixed_option = click.option(
    "--prefixed", is_flag=True, help="Every resource whose name begins with NAME."
)
_host_option = click.option(
    "--host", type=NAME, default=ANY_HOST, metavar="ADDRESS", help="Only from this IP address."
)
_principal_argument = click.argument("principal", type=NAME, metavar="USER")
#: options and arguments of a new rule, except its permission
_rule_options = options(
    _principal_argument,
    click.argument("operations", type=NAME),
    _resource_options,
    _prefixed_option,
    _host_option,
)


@acls.command(
    epilog=example(
        """
        barnabas acls grant alice read,write --topic orders
        barnabas acls grant alice read --group billing- --prefixed
        barnabas acls grant '*' describe --topic '*'
        barnabas acls grant bob delete --topic orders --deny
        """,
        "Operations are those of Kafka's ACLs: read, write, create, delete, alter, describe, cluster_action, "
        "describe_configs, alter_configs, idempotent_write, and all. Brokers apply a rule within a second.",
    )
)
@_rule_options
@click.option("--deny", is_flag=True, help="Deny the operations. A denial takes precedence over every grant.")
@bootstrap_option
def grant(deny: bool, **rule: Any) -> None:
    """Allow a user operations on a resource (or with --deny, deny them)."""
    _add(Permission.DENY if deny else Permission.ALLOW, **rule)


@acls.command(
    epilog=example(
        """
        barnabas acls deny bob delete --topic orders
        barnabas acls deny bob all --topic payments- --prefixed
        """,
        "A rule that denies takes precedence over every rule that allows. `barnabas acls revoke` removes it.",
    )
)
@_rule_options
@bootstrap_option
def deny(**rule: Any) -> None:
    """Deny a user operations on a resource, even if another rule grants them."""
    _add(Permission.DENY, **rule)


def _add(
    permission: Permission,
    principal: str,
    operations: str,
    prefixed: bool,
    host: str,
    bootstrap_server: str,
    **named: str | bool | None,
) -> None:
    """Create an ACL for each operation on each resource that the options name. Print the new ACLs.

    Args:
        permission: whether the ACLs allow or deny.
        principal: name of the user.
        operations: the operations, for example ``read,write``.
        prefixed: whether the names in `named` are prefixes of resource names.
        host: IP address of the client; "*" for any.
        bootstrap_server: addresses of brokers.
        named: the options that name resources, by the name of the option: `topic`, for example.
    """
    from barnabas.client.acls import create_acls
    from barnabas.client.reach import require_broker

    rules = [
        AclBinding(resource, AclEntry(_named(principal), permission, operation, host))
        for resource in _resources(named, prefixed)
        for operation in _operations(operations, resource.type)
    ]
    require_broker(bootstrap_server)
    create_acls(bootstrap_server, TIMEOUT, rules)
    for rule in rules:
        report(str(rule))


@acls.command(
    epilog=example(
        """
        barnabas acls revoke alice write --topic orders
        barnabas acls revoke alice
        barnabas acls revoke bob delete --topic orders --permission deny
        """,
        "Without operations and resources, the command removes all rules of the user, also those that deny.",
    )
)
@_principal_argument
@click.argument("operations", type=NAME, required=False)
@_resource_options
@_prefixed_option
@click.option("--host", type=NAME, metavar="ADDRESS", help="Only rules for this IP address; * for every one.")
@click.option(
    "--permission",
    type=click.Choice(["allow", "deny"]),
    help="Only rules that allow, or only those that deny.",
)
@bootstrap_option
def revoke(
    principal: str,
    operations: str | None,
    prefixed: bool,
    host: str | None,
    permission: str | None,
    bootstrap_server: str,
    **named: str | bool | None,
) -> None:
    """Remove rules of a user."""
    from barnabas.client.acls import delete_acls
    from barnabas.client.reach import require_broker

    resources = _resources(named, prefixed) if any(named.values()) else []
    about = [AclFilter(each.type, each.name, each.pattern, _named(principal)) for each in resources]
    filters = about or [AclFilter(principal=_named(principal))]
    if operations is not None:
        filters = [
            each._replace(operation=operation)
            for each in filters
            for operation in _operations(operations, each.type)
        ]
    kind = Permission[permission.upper()] if permission is not None else Permission.ANY
    filters = [each._replace(host=host, permission=kind) for each in filters]
    require_broker(bootstrap_server)
    gone = delete_acls(bootstrap_server, TIMEOUT, filters)
    for rule in gone:
        report(f"gone: {rule}")
    if not gone:
        report("no such rule")


@acls.command("list", epilog=example("barnabas acls list --of-user alice --json"))
@click.option("--of-user", type=NAME, help="Only the rules that name this user.")
@_resource_options
@json_option
@bootstrap_option
def list_acls(of_user: str | None, as_json: bool, bootstrap_server: str, **named: str | bool | None) -> None:
    """List rules. Options such as --topic select the rules of one resource."""
    from barnabas.client.acls import describe_acls
    from barnabas.client.reach import require_broker

    resources = _resources(named, prefixed=False) if any(named.values()) else []
    chosen = [AclFilter(each.type, each.name, PatternType.MATCH) for each in resources] or [AclFilter()]
    principal = None if of_user is None else _named(of_user)
    require_broker(bootstrap_server)
    rows = [
        {
            "principal": entry.principal,
            "permission": entry.permission.name,
            "operation": entry.operation.name,
            "resource_type": resource.type.name,
            "pattern_type": resource.pattern.name,
            "resource_name": resource.name,
            "host": entry.host,
        }
        for each in chosen
        for resource, entry in describe_acls(bootstrap_server, TIMEOUT, each._replace(principal=principal))
    ]
    columns = {
        "PRINCIPAL": "principal",
        "PERMISSION": "permission",
        "OPERATION": "operation",
        "RESOURCE": "resource_type",
        "PATTERN": "pattern_type",
        "NAME": "resource_name",
        "HOST": "host",
    }
    print_listing(columns, rows, as_json=as_json, empty="no rules")


@acls.command(
    epilog=example(
        "barnabas acls check alice read --topic orders",
        "The exit code is 1 if the operation is denied. Without --host, rules for one address do not count.",
    )
)
@_principal_argument
@click.argument("operation", type=NAME)
@_resource_options
@_host_option
@bootstrap_option
def check(
    principal: str, operation: str, host: str, bootstrap_server: str, **named: str | bool | None
) -> None:
    """Show whether a user may do an operation, and the rule that decides."""
    from barnabas.client.acls import describe_acls
    from barnabas.client.reach import require_broker

    require_broker(bootstrap_server)
    subjects = _subjects(bootstrap_server)
    is_denied = False
    for resource in _resources(named, prefixed=False):
        about = AclFilter(resource.type, resource.name, PatternType.MATCH)
        rules = Acls.of(describe_acls(bootstrap_server, TIMEOUT, about))
        for each in _operations(operation, resource.type):
            decision = decide(rules, subjects, _named(principal), host, each, resource.type, resource.name)
            verdict = "allowed" if decision.is_allowed else "denied"
            why = decision.reason.value if decision.rule is None else str(decision.rule)
            click.echo(f"{each.name} on {resource.type.name} '{resource.name}' is {verdict}: {why}")
            is_denied |= not decision.is_allowed
    if is_denied:
        sys.exit(1)


def _subjects(bootstrap_server: str) -> SubjectRules:
    """Return the super users, and whether access without a rule is allowed, from a broker's settings."""
    admin = connect(bootstrap_server)
    broker = min(node.id for node in admin.cluster().nodes)
    values = {setting.name: setting.value for setting in admin.configs("broker", str(broker))}
    names = (values.get("super.users") or "").split(";")
    return SubjectRules(
        frozenset(name.strip() for name in names if name.strip()),
        values.get("allow.everyone.if.no.acl.found") == "true",
    )


def _named(user: str) -> str:
    return user if ":" in user else f"User:{user}"


def _resources(named: dict[str, str | bool | None], prefixed: bool) -> list[ResourcePattern]:
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    found = [
        ResourcePattern(kind, str(name), pattern)
        for field, kind in _RESOURCES.items()
        if (name := named[field]) is not None
    ]
    if named["cluster"]:
        if prefixed:
            raise click.UsageError(
                "--prefixed cannot be used with --cluster, because there is only one cluster"
            )
        found.append(ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME))
    if not found:
        raise click.UsageError("name a resource: --topic, --group, --transactional-id or --cluster")
    return found


def _operations(text: str, kind: ResourceType) -> Sequence[Operation]:
    operations = []
    known = (*SUPPORTED_OPERATIONS.get(kind, tuple(Operation)[1:]), Operation.ALL)
    for word in dict.fromkeys(text.split(",")):
        name = word.strip().upper().replace("-", "_")
        operation = next((each for each in known if each.name == name), None)
        if operation is None:
            choices = ", ".join(each.name.lower() for each in known)
            raise click.UsageError(f"{word} is not an operation on a {kind.name.lower()}: {choices}")
        operations.append(operation)
    return operations
