"""Random walks of an administrator who changes ACLs, quotas and users' passwords."""

from __future__ import annotations

from typing import Any

from tests.compat.walks.pair import Pair
from tests.compat.walks.topics import without_more_than_the_error
from tests.compat.wire import Wire

from barnabas.kafka.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.kafka.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.kafka.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.kafka.protocol.messages.describe_acls import DescribeAclsRequest
from barnabas.kafka.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from barnabas.kafka.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from barnabas.kafka.protocol.schema import Request

#: the numbers that mean any value in a filter, and any pattern that matches a name
ANY, MATCH = 1, 2
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
#: types of resources
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, TOKEN, USER = range(2, 8)
NAMES = ("t", "u", "tt", "*", "kafka-cluster", "")
PRINCIPALS = ("User:alice", "User:*", "User:bob", "Group:x", "User:CN=a,OU=b", "user:alice")
HOSTS = ("*", "127.0.0.1", "10.0.0.1", "localhost")
#: names of resources that are whole names
BARE = ("*", "kafka-cluster", "")
#: type and name of the resource, pattern, principal, host, operation, permission
Rule = tuple[int, str, int, str, str, int, int]
#: the same of a filter
Chosen = tuple[int, str | None, int, str | None, str | None, int, int]
EVERY_RULE: Chosen = (ANY, None, ANY, None, None, ANY, ANY)
USERS = ("a", "b", "c")
KEYS = (
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
    "connection_creation_rate", "no_such_rate", "",
)  # fmt: skip


class SecurityWalk:
    """One administrator, who changes and describes rules, quotas and users."""

    def __init__(self, pair: Pair) -> None:
        self.pair, self.random = pair, pair.random

    def run(self, steps: int) -> None:
        work = {
            self.create_acls: 6, self.delete_acls: 2, self.describe_acls: 5, self.alter_quotas: 5,
            self.quotas: 4, self.alter_users: 4, self.users: 3,
        }  # fmt: skip
        try:
            for _ in range(steps):
                self.random.choices(list(work), list(work.values()))[0]()
        finally:
            self.restore()

    def create_acls(self) -> None:
        rng = self.random
        rules = []
        for _ in range(rng.choice((1, 1, 2, 4))):
            kind = rng.choices((TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, TOKEN, USER), (6, 3, 2, 2, 1, 1))[0]
            name = "kafka-cluster" if kind == CLUSTER and rng.random() < 0.8 else rng.choice(NAMES)
            rules.append(
                (
                    kind,
                    name,
                    rng.choices((LITERAL, PREFIXED), (8, 5))[0],
                    rng.choices(PRINCIPALS, (8, 3, 3, 1, 1, 0.3))[0],
                    rng.choices(HOSTS, (8, 2, 2, 0.3))[0],
                    rng.randint(2, 14),
                    rng.choices((ALLOW, DENY), (8, 4))[0],
                )
            )

        def make(wire: Wire, _: int) -> Request:
            return CreateAclsRequest(creations=[creation(wire, rule) for rule in rules])

        self.pair.ask(make, f"create ACLs {rules}", version=rng.choice((1, 2, 3, 3)))
        self.settle()

    def _chosen(self) -> Chosen:
        rng = self.random
        return (
            rng.choices((ANY, TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, TOKEN, USER), (6, 6, 2, 2, 1, 1, 1))[
                0
            ],
            rng.choice((None, None, *NAMES)),
            rng.choices((ANY, MATCH, LITERAL, PREFIXED), (4, 4, 4, 3))[0],
            rng.choices((None, *PRINCIPALS, "alice", ""), (8, 4, 2, 2, 0.5, 0.5, 0.3, 0.3, 0.3))[0],
            rng.choices((None, *HOSTS, ""), (10, 2, 1, 1, 0.3, 0.3))[0],
            rng.choices((ANY, *range(2, 15)), (12, *[0.8] * 13))[0],
            rng.choices((ANY, ALLOW, DENY), (8, 2, 2))[0],
        )

    def delete_acls(self) -> None:
        filters = [self._chosen() for _ in range(self.random.choice((1, 1, 2)))]

        def make(wire: Wire, _: int) -> Request:
            return DeleteAclsRequest(
                filters=[DeleteAclsFilter(**_filter(wire, chosen)) for chosen in filters]
            )

        self.pair.ask(make, f"delete ACLs {filters}", version=self.random.choice((1, 2, 3, 3)))
        self.settle()

    def describe_acls(self) -> None:
        self._describe_acls(self._chosen(), self.random.choice((1, 2, 3, 3)))

    def _describe_acls(self, chosen: Chosen, version: int) -> None:
        self.pair.ask(
            lambda wire, _: DescribeAclsRequest(**_filter(wire, chosen)),
            f"describe ACLs v{version} {chosen}",
            version=version,
            patient=True,
        )

    def settle(self) -> None:
        """Wait until both brokers know the same rules."""
        self._describe_acls(EVERY_RULE, 3)

    def _entity(self, wire: Wire, parts: list[tuple[str, str | None]]) -> list[EntityData]:
        return [
            EntityData(entity_type=kind, entity_name=wire.name(name) if name and kind != "ip" else name)
            for kind, name in parts
        ]

    def _parts(self) -> list[tuple[str, str | None]]:
        rng = self.random
        kinds = rng.choices(
            (["user"], ["client-id"], ["user", "client-id"], ["ip"], ["user", "ip"], ["group"], []),
            (8, 5, 6, 4, 0.3, 0.3, 0.3),
        )[0]
        names: dict[str, tuple[str | None, ...]] = {
            "ip": ("127.9.9.9", "10.1.1.1", "nowhere.invalid", "", None)
        }
        return [(kind, rng.choice(names.get(kind, (*USERS, None, "")))) for kind in kinds]

    def alter_quotas(self) -> None:
        rng = self.random
        wanted = []
        for _ in range(rng.choice((1, 1, 2))):
            parts = self._parts()
            if any(parts == others for others, _ in wanted):
                continue
            keys = KEYS[4:] if parts and parts[0][0] == "ip" and rng.random() < 0.8 else KEYS
            ops = []
            for key in rng.choices(keys, k=rng.choice((1, 1, 2, 3, 0))):
                value = rng.choice((1000.0, 1000.0, 0.5, 0.0, -1.0, 1e10, 1e30))
                ops.append((key, value, rng.random() < 0.25))
            wanted.append((parts, ops))
        validate = rng.random() < 0.2

        def make(wire: Wire, _: int) -> Request:
            entries = [
                EntryData(
                    entity=self._entity(wire, parts),
                    ops=[OpData(key=key, value=value, remove=remove) for key, value, remove in ops],
                )
                for parts, ops in wanted
            ]
            return AlterClientQuotasRequest(entries=entries, validate_only=validate)

        self.pair.ask(make, f"alter quotas {wanted} validate {validate}", version=rng.choice((0, 1)))
        self._describe_quotas([("user", 2, None)], strict=False)
        self._describe_quotas([("client-id", 2, None)], strict=False)
        self._describe_quotas([("ip", 2, None)], strict=False)

    def quotas(self) -> None:
        rng = self.random
        components = []
        for kind, name in self._parts():
            match = rng.choices((0, 1, 2, 3), (5, 3, 5, 0.3))[0]
            components.append((kind, match, name if match == 0 or rng.random() < 0.1 else None))
        self._describe_quotas(components, strict=rng.random() < 0.5)

    def _describe_quotas(self, components: list[tuple[str, int, str | None]], *, strict: bool) -> None:
        def make(wire: Wire, _: int) -> Request:
            asked = [
                ComponentData(
                    entity_type=kind, match_type=how, match=wire.name(name) if name and kind != "ip" else name
                )
                for kind, how, name in components
            ]
            return DescribeClientQuotasRequest(components=asked, strict=strict)

        told = f"quotas {components} strict {strict}"
        self.pair.ask(make, told, version=self.random.choice((0, 1)), patient=True)

    def alter_users(self) -> None:
        rng = self.random
        # Kafka changes a user once in a request, Barnabas both mechanisms of a user.
        chosen = rng.sample((*USERS, ""), rng.choice((1, 1, 2, 3)))
        gone = rng.choice((0, 0, 1, 2))
        mechanism = (1, 2, 0, 3), (5, 4, 0.3, 0.3)
        deletions = [(name, rng.choices(*mechanism)[0]) for name in chosen[:gone]]
        iterations = (4096, 8192, 16384, 4095, 16385, 0, -1), (8, 4, 2, 0.5, 0.5, 0.3, 0.3)
        upsertions = [
            (name, rng.choices(*mechanism)[0], rng.choices(*iterations)[0], b"salt", b"p" * 32)
            for name in chosen[gone:]
        ]
        if upsertions and rng.random() < 0.1:
            upsertions.append(upsertions[0])

        def make(wire: Wire, _: int) -> Request:
            return AlterUserScramCredentialsRequest(
                deletions=[
                    ScramCredentialDeletion(name=name and wire.name(name), mechanism=how)
                    for name, how in deletions
                ],
                upsertions=[
                    ScramCredentialUpsertion(
                        name=name and wire.name(name),
                        mechanism=how,
                        iterations=times,
                        salt=salt,
                        salted_password=salted,
                    )
                    for name, how, times, salt, salted in upsertions
                ],
            )

        self.pair.ask(make, f"alter users: delete {deletions} upsert {upsertions}")
        self._users(list(USERS))

    def users(self) -> None:
        self._users(
            [self.random.choice((*USERS, "nobody", "")) for _ in range(self.random.choice((1, 2, 3)))]
        )

    def _users(self, names: list[str]) -> None:
        self.pair.ask(
            lambda wire, _: DescribeUserScramCredentialsRequest(
                users=[UserName(name=name and wire.name(name)) for name in names]
            ),
            f"users {names}",
            without_more_than_the_error,
            patient=True,
        )

    def remove_rules(self) -> None:
        self.pair.each(
            lambda wire: wire.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**_filter(wire, EVERY_RULE))]))
        )

    def restore(self) -> None:
        """Remove all rules and quotas, for the walks after this one."""
        self.remove_rules()

        def clear(wire: Wire) -> None:
            found = {}
            for kind in ("user", "client-id", "ip"):
                component = ComponentData(entity_type=kind, match_type=2, match=None)
                answer = wire.ask(DescribeClientQuotasRequest(components=[component]))
                found |= {repr(entry.entity): entry for entry in answer.entries}
            entries = [
                EntryData(
                    entity=[
                        EntityData(entity_type=e.entity_type, entity_name=e.entity_name) for e in entry.entity
                    ],
                    ops=[OpData(key=value.key, remove=True) for value in entry.values],
                )
                for entry in found.values()
            ]
            wire.ask(AlterClientQuotasRequest(entries=entries))

        self.pair.each(clear)


def creation(wire: Wire, rule: Rule) -> AclCreation:
    """Return a rule for a request, with names of the walk."""
    kind, name, pattern, principal, host, operation, permission = rule
    return AclCreation(
        resource_type=kind,
        resource_name=name if name in BARE else wire.name(name),
        resource_pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def _filter(wire: Wire, chosen: Chosen) -> dict[str, Any]:
    """Return the fields of a filter for a request, with names of the walk."""
    kind, name, pattern, principal, host, operation, permission = chosen
    return {
        "resource_type_filter": kind,
        "resource_name_filter": name if name is None or name in BARE else wire.name(name),
        "pattern_type_filter": pattern,
        "principal_filter": principal,
        "host_filter": host,
        "operation": operation,
        "permission_type": permission,
    }
