"""Creates, renews, expires and deletes delegation tokens (KIP-48, KIP-373)."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from random import Random

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.text import logger_of
from barnabas.broker.controller.writes import ControllerWrites
from barnabas.broker.logins.delegation_tokens import MAX_RENEWERS, MAX_TOKENS, DelegationToken, TokenKeys
from barnabas.broker.metadata import token_nodes
from barnabas.broker.metadata.image import ClusterImage
from barnabas.broker.metadata.store import Create, Delete, Set
from barnabas.broker.view import BrokerView
from barnabas.kafka.security.principal import Principal

log = logger_of(__name__)

#: the longest name of an owner or a renewer, in bytes
_MAX_NAME_LENGTH = 256
#: how many tokens are checked in one turn of the event loop
_AT_ONCE = 500
_ID_BYTES = 16


class TokenControl:
    """The part of the controller that manages delegation tokens.

    Args:
        writes: writes to the metadata store while this broker is the controller.
        view: settings and clock of this broker.
        keys: makes the HMACs; None if tokens are disabled.
        random: makes ids.
    """

    def __init__(
        self, writes: ControllerWrites, view: BrokerView, keys: TokenKeys | None, random: Random
    ) -> None:
        self._writes = writes
        self._view = view
        self._keys = keys
        self._random = random

    def keys(self) -> TokenKeys:
        """Return the keys for the HMACs.

        Raises KafkaError DELEGATION_TOKEN_AUTH_DISABLED if there are none.
        """
        if self._keys is None:
            raise KafkaError(
                ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "delegation.token.secret.key is not set"
            )
        return self._keys

    async def create(
        self, requester: Principal, owner: Principal, renewers: Sequence[Principal], max_lifetime_ms: int
    ) -> DelegationToken:
        """Create a token.

        Args:
            requester: principal that requests the token.
            owner: principal of a client that logs in with the token.
            renewers: principals that can renew and expire the token, in addition to the owner.
            max_lifetime_ms: longest lifetime in ms; 0 or less for the longest that the settings allow.

        Raises:
            KafkaError: DELEGATION_TOKEN_AUTH_DISABLED, tokens are disabled; INVALID_REQUEST, a name is empty
                or too long, or there are too many renewers; POLICY_VIOLATION, there are too many tokens;
                NOT_CONTROLLER or KAFKA_STORAGE_ERROR, as in `ControllerWrites.write`.
        """
        self.keys()
        if len(renewers) > MAX_RENEWERS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"a token has at most {MAX_RENEWERS} renewers")
        for each in (owner, *renewers):
            if not (each.kind and each.name) or len(str(each).encode()) > _MAX_NAME_LENGTH:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"a principal has 1 to {_MAX_NAME_LENGTH} bytes")
        async with self._writes.answering() as image:
            if len(image.delegation_tokens) >= MAX_TOKENS:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION, f"there are {MAX_TOKENS} delegation tokens: expire some"
                )
            config = self._view.config
            now_ms = self._view.clock.now_ms()
            longest = config.delegation_token_max_lifetime_ms
            max_ms = now_ms + (min(max_lifetime_ms, longest) if max_lifetime_ms > 0 else longest)
            token = DelegationToken(
                self._new_id(),
                owner,
                requester,
                tuple(dict.fromkeys(renewers)),
                now_ms,
                max_ms,
                min(max_ms, now_ms + config.delegation_token_expiry_time_ms),
            )
            await self._writes.write([Create(token_nodes.path(token.id), token_nodes.encode(token))])
            return token

    async def renew(self, principal: Principal, mac: bytes, period_ms: int) -> int:
        """Renew the token with the HMAC `mac`, for `principal`.

        The token then expires in `period_ms` milliseconds from now. A negative period means the default of
        the settings.

        Returns:
            The new expiry time, in milliseconds since the epoch, at most the end of the token's longest
            lifetime.

        Raises:
            KafkaError: DELEGATION_TOKEN_AUTH_DISABLED, tokens are disabled; DELEGATION_TOKEN_NOT_FOUND, no
                token has this HMAC; DELEGATION_TOKEN_OWNER_MISMATCH, the principal is neither the token's
                owner nor a renewer; DELEGATION_TOKEN_EXPIRED, the token has expired; NOT_CONTROLLER or
                KAFKA_STORAGE_ERROR, as in `ControllerWrites.write`.
        """
        if period_ms < 0:
            period_ms = self._view.config.delegation_token_expiry_time_ms
        async with self._writes.answering() as image:
            return await self._expire_in(await self._find(image, principal, mac), period_ms)

    async def expire(self, principal: Principal, mac: bytes, period_ms: int) -> int:
        """Set the expiry of the token with the HMAC `mac`, for `principal`.

        The token expires in `period_ms` milliseconds from now. A negative period deletes the token.

        Returns:
            The new expiry time, in milliseconds since the epoch; for a deleted token the present time.

        Raises:
            KafkaError: DELEGATION_TOKEN_AUTH_DISABLED, tokens are disabled; DELEGATION_TOKEN_NOT_FOUND, no
                token has this HMAC; DELEGATION_TOKEN_OWNER_MISMATCH, the principal is neither the token's
                owner nor a renewer; DELEGATION_TOKEN_EXPIRED, the token has expired and is not to be deleted;
                NOT_CONTROLLER or KAFKA_STORAGE_ERROR, as in `ControllerWrites.write`.
        """
        async with self._writes.answering() as image:
            token = await self._find(image, principal, mac)
            if period_ms >= 0:
                return await self._expire_in(token, period_ms)
            await self._writes.write([Delete(token_nodes.path(token.id))])
            return self._view.clock.now_ms()

    async def delete_expired(self) -> None:
        """Delete the tokens that have expired, if this broker is the controller. Log a failure."""
        if not self._writes.is_controller:
            return
        try:
            async with self._writes.deciding() as image:
                now_ms = self._view.clock.now_ms()
                tokens = image.delegation_tokens.values()
                expired = sorted(token.id for token in tokens if token.has_expired(now_ms))
                await self._writes.write_batches([Delete(token_nodes.path(each)) for each in expired])
                await self._writes.settled()
        except KafkaError as error:
            log.warning("cannot delete expired delegation tokens yet: %s", error)

    def _new_id(self) -> str:
        """Return 128 random bits in base64.

        The id does not begin with "-", so that a command line does not read it as an option.
        """
        token_id = "-"
        while token_id.startswith("-"):
            token_id = base64.urlsafe_b64encode(self._random.randbytes(_ID_BYTES)).decode().rstrip("=")
        return token_id

    async def _expire_in(self, token: DelegationToken, period_ms: int) -> int:
        now_ms = self._view.clock.now_ms()
        if token.has_expired(now_ms):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        changed = token._replace(expires_ms=min(token.max_ms, now_ms + period_ms))
        await self._writes.write([Set(token_nodes.path(token.id), token_nodes.encode(changed))])
        return changed.expires_ms

    async def _find(self, image: ClusterImage, principal: Principal, mac: bytes) -> DelegationToken:
        keys = self.keys()
        for number, token in enumerate(image.delegation_tokens.values(), 1):
            if keys.belongs(mac, token):
                if token.may_be_changed_by(principal):
                    return token
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
