"""Authenticates and authorizes clients of a registry, by the users and ACLs of the cluster.

A client authenticates by HTTP basic authentication, with a user and a password of the cluster. The registry
checks them by logging in to a broker. The cluster's ACLs on topics decide on permissions. A subject
``orders-value`` or ``orders-key`` belongs to the topic ``orders``; any other subject has the ACLs of a topic
of its own name. If the cluster has no authorizer, every user may do everything.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
import secrets
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from barnabas.base.errors import BarnabasError, ConfigError, ErrorCode, KafkaError
from barnabas.client.acls import describe_acls
from barnabas.client.brokers import ask_once
from barnabas.client.errors import AuthenticationError
from barnabas.client.passwords import known_users
from barnabas.client.servers import Servers, servers_of
from barnabas.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.kafka.security.acls import (
    UNRESTRICTED,
    Access,
    AclFilter,
    Acls,
    Authorizer,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    SubjectRules,
)
from barnabas.kafka.security.principal import Principal
from barnabas.registry.errors import RegistryError
from barnabas.registry.subjects import unqualified

logger = logging.getLogger(__name__)

#: seconds until a login is tried at a broker again
LOGIN_S = 60.0
#: seconds between two reads of the ACLs and of the list of users
RULES_S = 5.0
#: characters of user and password together, at most
_MAX_CHARS = 1_000
_MAX_LOGINS = 1_000
_TIMEOUT_S = 10.0
#: logins that are tried at the same time, at most; others wait
_AT_ONCE = 4

_ALL = AclFilter(ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)
_PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def topic_of(subject: str) -> str:
    """Return the topic whose ACLs apply to a subject: the subject without ``-value`` or ``-key``."""
    subject = unqualified(subject)
    for suffix in ("-value", "-key"):
        if subject.endswith(suffix) and subject != suffix:
            return subject.removesuffix(suffix)
    return subject


class _Login(NamedTuple):
    """A successful login of a client at a broker, which is valid for `LOGIN_S` seconds."""

    user: str
    #: end of its validity on the clock of `time.monotonic`
    good_until: float


class ClusterAccess:
    """Authenticates and authorizes a registry's clients by the logins and ACLs of its cluster.

    All methods run in one event loop.

    Args:
        servers: the cluster, with the registry's own login. The user of this login needs DESCRIBE on the
            cluster.
        super_users: names of users without restrictions, in addition to the registry's own user.

    Raises:
        ConfigError: `servers` has no login by PLAIN or SCRAM. The registry uses the same mechanism to check
            the passwords of its clients at a broker.
    """

    def __init__(self, servers: str, super_users: Iterable[str] = ()) -> None:
        settings = servers.settings if isinstance(servers, Servers) else {}
        mechanism = settings.get("sasl.mechanism") or settings.get("sasl.mechanisms") or ""
        protocol = settings.get("security.protocol", "plaintext").lower()
        if not protocol.startswith("sasl_") or mechanism.upper() not in _PASSWORD_MECHANISMS:
            raise ConfigError(
                "the registry can ask its clients for a login only if it logs in to the brokers itself, by "
                "PLAIN or SCRAM: give it --config FILE with sasl.mechanism, a user and a password"
            )
        self._servers = servers
        own = settings.get("sasl.username", "")
        self._subjects = SubjectRules(frozenset(f"User:{name}" for name in (own, *super_users) if name))
        self._key = secrets.token_bytes(32)
        #: successful logins, by a keyed hash of user and password
        self._logins: dict[bytes, _Login] = {}
        #: whether the last read of the list of users succeeded
        self._users_are_told = True
        self._threads = ThreadPoolExecutor(_AT_ONCE, "registry-logins")
        self._acls = Acls.of([])
        #: None if every client may do everything
        self._authorizer: Authorizer | None = None
        self._refreshing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Read the ACLs now, and then every `RULES_S` seconds until `close`.

        Raises BarnabasError if no broker answers now, or the registry's own user may not read the ACLs.
        """
        await self._refresh()
        self._refreshing = asyncio.ensure_future(self._keep_fresh())

    async def close(self) -> None:
        """Stop reading the ACLs and checking logins."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait([self._refreshing])
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def access(self, authorization: str | None, host: str) -> Access:
        """Return the permissions of a client, from its header ``Authorization`` and its address.

        The user and password are checked at a broker, if that was not done in the last `LOGIN_S` seconds. If
        no broker answers, an earlier successful check still counts. If the cluster has no authorizer, the
        result is `UNRESTRICTED`.

        Raises:
            RegistryError: 401, credentials are missing or wrong; 503, no broker answers, and no earlier check
                succeeded.
        """
        user, password = _credentials(authorization)
        await self._log_in(user, password)
        if self._authorizer is None:
            return UNRESTRICTED
        return self._authorizer.access(Principal(user), host)

    async def _log_in(self, user: str, password: str) -> None:
        known = hmac.digest(self._key, f"{user}\0{password}".encode(), "sha256")
        now = time.monotonic()
        remembered = self._logins.get(known)
        if remembered is not None and now < remembered.good_until:
            return
        servers = servers_of(self._servers, {"sasl.username": user, "sasl.password": password})
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._threads, _try_login, servers)
        except AuthenticationError as error:
            self._logins.pop(known, None)
            logger.warning("a login of %r has failed: %s", user[:100], error)
            raise RegistryError(401, "Unauthorized") from None
        except (BarnabasError, OSError) as error:
            if remembered is None:
                logger.warning("a login of %r cannot be checked: %s", user[:100], error)
                raise RegistryError(503, "no broker answers: the login cannot be checked") from None
            return  # an earlier login stays valid while no broker can be asked
        if len(self._logins) >= _MAX_LOGINS:
            self._logins.clear()
        self._logins[known] = _Login(user, now + LOGIN_S)

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(RULES_S)
            try:
                await self._refresh()
            except BarnabasError as error:
                logger.warning("cannot read the ACLs, so the registry keeps the last ones: %s", error)
            await self._forget_deleted()

    async def _forget_deleted(self) -> None:
        """Remove the stored logins of users that the cluster does not list any more.

        If the users cannot be read, keep all logins, and log a warning for the first failure in a row.

        The cluster does not list users that only the settings of a broker's listener define. So their logins
        are removed too, and their next request is checked again.
        """
        users = {login.user for login in self._logins.values()}
        if not users:
            return
        try:
            known = await asyncio.to_thread(known_users, self._servers, _TIMEOUT_S, users)
        except BarnabasError as error:
            if self._users_are_told:
                logger.warning(
                    "cannot read the users, so deleted users can log in for up to %g s: %s", LOGIN_S, error
                )
            self._users_are_told = False
            return
        self._users_are_told = True
        gone = users - known
        self._logins = {key: login for key, login in self._logins.items() if login.user not in gone}

    async def _refresh(self) -> None:
        try:
            rules = await asyncio.to_thread(describe_acls, self._servers, _TIMEOUT_S, _ALL)
        except KafkaError as error:
            if error.code is not ErrorCode.SECURITY_DISABLED:
                raise
            self._authorizer = None
            return
        acls = Acls.of(rules)
        self._acls = acls
        if self._authorizer is None:
            self._authorizer = Authorizer(lambda: self._acls, self._subjects)


def _try_login(servers: Servers) -> None:
    """Log in to a broker with the user and password in `servers`.

    Raises AuthenticationError, or ClientError if no broker answers.
    """
    ask_once(servers, _TIMEOUT_S, DescribeClusterRequest())


def _credentials(header: str | None) -> tuple[str, str]:
    scheme, _, encoded = (header or "").partition(" ")
    if scheme.lower() != "basic" or len(encoded) > 2 * _MAX_CHARS:
        raise RegistryError(401, "Unauthorized")
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise RegistryError(401, "Unauthorized") from None
    if not (user and colon) or "\0" in user + password:
        raise RegistryError(401, "Unauthorized")
    return user, password
