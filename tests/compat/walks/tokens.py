"""Random walks of delegation tokens (KIP-48, KIP-373), which an administrator and Alice create and use."""

from __future__ import annotations

import time
from typing import Any

from tests.compat.walks.pair import Pair
from tests.compat.walks.security import ALLOW, DENY, LITERAL, USER, SecurityWalk, creation
from tests.compat.wire import Wire

from barnabas.kafka.protocol.messages.create_acls import CreateAclsRequest
from barnabas.kafka.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from barnabas.kafka.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from barnabas.kafka.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.kafka.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.kafka.protocol.schema import Request

#: of the times in answers, in milliseconds; the periods of requests lie between two of them
UNIT = 600_000
PERIODS = (UNIT // 2, UNIT // 2 * 3, 100 * UNIT + UNIT // 2, -1)
#: permissions on the tokens of a user
CREATE_TOKENS, DESCRIBE_TOKENS = 13, 14
#: kinds and names of users
USERS = (("User", "admin"), ("User", "alice"), ("User", "bob"), ("Group", "alice"))
#: fields with a time, and fields that each broker makes up
_TIMES = {"expiry_timestamp_ms", "max_timestamp_ms", "expiry_timestamp", "max_timestamp"}
_MADE_UP = {"token_id", "hmac", "issue_timestamp_ms", "issue_timestamp"}


class TokenWalk:
    """Two users with tokens of their own and of each other.

    Args:
        admin: both brokers, with logins of an administrator.
        alice: both brokers, with logins of Alice, whose rules change.
    """

    def __init__(self, admin: Pair, alice: Pair) -> None:
        self.admin, self.alice, self.random = admin, alice, admin.random
        self.guard = SecurityWalk(admin)
        #: the secrets of both brokers' tokens
        self.secrets: list[tuple[bytes, bytes]] = [(b"unknown", b"unknown")]

    def run(self, steps: int) -> None:
        work = {self.create: 5, self.renew: 4, self.expire: 3, self.describe: 5, self.change_rules: 1}
        try:
            for _ in range(steps):
                self.random.choices(list(work), list(work.values()))[0]()
        finally:
            self.guard.remove_rules()
            for pair in (self.admin, self.alice):
                pair.each(_remove_tokens)

    def _pair(self) -> Pair:
        return self.random.choice((self.admin, self.alice))

    def change_rules(self) -> None:
        """Let the administrator allow or deny Alice to use the tokens of others."""
        rng = self.random
        owner = "User:" + rng.choice(("admin", "bob", "alice"))
        operation, permission = rng.choice((CREATE_TOKENS, DESCRIBE_TOKENS)), rng.choice((ALLOW, ALLOW, DENY))

        def make(wire: Wire, _: int) -> Request:
            rule = creation(wire, (USER, "*", LITERAL, "User:alice", "*", operation, permission))
            rule.resource_name = owner
            return CreateAclsRequest(creations=[rule])

        if rng.random() < 0.3:
            self.guard.remove_rules()
        self.admin.ask(make, f"rule {owner} {operation} {permission}")
        self.guard.settle()

    def create(self) -> None:
        rng = self.random
        kind, name = rng.choices((("", ""), *USERS[:3]), (8, 3, 3, 2))[0]
        renewers = rng.choices(((), *((user,) for user in USERS), USERS[:2]), (5, 2, 3, 2, 0.5, 2))[0]
        version, life = rng.choice((1, 2, 3, 3, 3)), rng.choice((*PERIODS, 10**15, 0))
        pair = self._pair()
        mine, theirs = pair.ask(
            lambda *_: CreateDelegationTokenRequest(
                owner_principal_type=kind,
                owner_principal_name=name,
                renewers=[CreatableRenewers(principal_type=k, principal_name=n) for k, n in renewers],
                max_lifetime_ms=life,
            ),
            f"{self._who(pair)} creates v{version} for {kind}:{name} renewers {renewers} life {life}",
            _shape,
            version=version,
        )
        if not mine.error_code:
            self.secrets.append((mine.hmac, theirs.hmac))
            self._settle()

    def _who(self, pair: Pair) -> str:
        return "admin" if pair is self.admin else "alice"

    def _settle(self) -> None:
        for pair in (self.admin, self.alice):
            self._describe(pair, None, 3)

    def renew(self) -> None:
        secrets, period, pair = self.random.choice(self.secrets), self.random.choice(PERIODS), self._pair()
        pair.ask(
            lambda _, number: RenewDelegationTokenRequest(hmac=secrets[number], renew_period_ms=period),
            f"{self._who(pair)} renews {self.secrets.index(secrets)} for {period}",
            _shape,
        )
        self._settle()

    def expire(self) -> None:
        secrets, period, pair = self.random.choice(self.secrets), self.random.choice(PERIODS), self._pair()
        pair.ask(
            lambda _, number: ExpireDelegationTokenRequest(
                hmac=secrets[number], expiry_time_period_ms=period
            ),
            f"{self._who(pair)} expires {self.secrets.index(secrets)} in {period}",
            _shape,
        )
        self._settle()

    def describe(self) -> None:
        rng = self.random
        owners = rng.choice((None, None, [], [rng.choice(USERS)], rng.sample(USERS, 2)))
        self._describe(self._pair(), owners, rng.choice((1, 2, 3, 3)))

    def _describe(self, pair: Pair, owners: list[tuple[str, str]] | None, version: int) -> None:
        wanted = None
        if owners is not None:
            wanted = [DescribeDelegationTokenOwner(principal_type=k, principal_name=n) for k, n in owners]
        pair.ask(
            lambda *_: DescribeDelegationTokenRequest(owners=wanted),
            f"{self._who(pair)} describes v{version} tokens of {owners}",
            _shape,
            version=version,
            patient=True,
        )


def _remove_tokens(wire: Wire) -> None:
    for token in wire.ask(DescribeDelegationTokenRequest(owners=None)).tokens:
        wire.ask(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1))


def _shape(answer: Any) -> Any:
    """Return an answer with times in units from now on, and without what brokers make up."""
    if isinstance(answer, list):
        return sorted(map(_shape, answer), key=repr)
    if not isinstance(answer, dict):
        return answer
    if answer.get("error_code"):
        return {"error_code": answer["error_code"]}
    now = time.time() * 1000
    return {
        name: round((value - now) // UNIT) if name in _TIMES and value > 0 else _shape(value)
        for name, value in answer.items()
        if name not in _MADE_UP
    }
