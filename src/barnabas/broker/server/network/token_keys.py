"""Reads the identity provider's public keys, which verify tokens of SASL/OAUTHBEARER (KIP-768)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from barnabas.base.environment.documents import DocumentError, read_document
from barnabas.base.environment.environment import Environment
from barnabas.base.errors import ConfigError
from barnabas.base.tasks import start_task, stop_tasks
from barnabas.base.text import logger_of
from barnabas.broker.config import BrokerConfig
from barnabas.broker.logins.tokens import SignedTokens, TokenRules, Tokens, UnsignedTokens, parse_keys
from barnabas.broker.server.network.endpoint import Endpoint

if TYPE_CHECKING:
    from joserfc.jwk import Key

log = logger_of(__name__)

#: A token with an unknown key has the keys read again, so often at most, in seconds.
_EAGER_SECONDS = 10.0
_URL = "sasl.oauthbearer.jwks.endpoint.url"
#: settings that can differ between listeners; listeners with equal values share a verifier
_SETTINGS = (
    "sasl_oauthbearer_allow_unverified_audience",
    "sasl_oauthbearer_allow_unverified_issuer",
    "sasl_oauthbearer_clock_skew_seconds",
    "sasl_oauthbearer_expected_audience",
    "sasl_oauthbearer_expected_issuer",
    "sasl_oauthbearer_jwks_endpoint_refresh_ms",
    "sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms",
    "sasl_oauthbearer_jwks_endpoint_retry_backoff_ms",
    "sasl_oauthbearer_jwks_endpoint_url",
    "sasl_oauthbearer_scope_claim_name",
    "sasl_oauthbearer_sub_claim_name",
    "barnabas_oauthbearer_unsigned",
)


class TokenKeys:
    """Holds the identity provider's public keys, and reads them again periodically, in a thread.

    The period is ``sasl.oauthbearer.jwks.endpoint.refresh.ms``. A token with an unknown key also causes a new
    read (`ask_again`). If a read fails, the last keys stay in use, and the task reads again after a back-off.

    Args:
        config: settings of the listener.
        url: URL of the keys.
        environment: provides the thread.
    """

    def __init__(self, config: BrokerConfig, url: str, environment: Environment) -> None:
        self._config = config
        self._url = url
        self._threads = environment.blocking.pool("token keys", 1)
        self._loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        #: replaced whole; read from threads
        self.keys: list[Key] = []

    async def start(self) -> None:
        """Read the keys, and start the task that reads them again. Raises ConfigError if the read fails."""
        try:
            self.keys = await self._threads.run(_read, self._url)
        except (DocumentError, ConfigError) as error:
            raise ConfigError(f"{_URL}={self._url} cannot be used: {error}") from None
        log.info("read %d keys of the identity provider, which check OAUTHBEARER tokens", len(self.keys))
        self._task = start_task(self._renew(), "token keys")

    async def stop(self) -> None:
        await stop_tasks(self._task)
        self._threads.abandon()

    def ask_again(self) -> None:
        """Read the keys again soon, because a token names an unknown key. Any thread can call this."""
        with suppress(RuntimeError):  # the loop has ended meanwhile
            self._loop.call_soon_threadsafe(self._wanted.set)

    async def _renew(self) -> None:
        config = self._config
        first_backoff = config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms / 1000
        max_backoff = config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms / 1000
        interval = config.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000
        backoff = 0.0
        while True:
            if backoff:
                await asyncio.sleep(backoff)
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wanted.wait(), interval)
            self._wanted.clear()
            try:
                self.keys = await self._threads.run(_read, self._url)
            except (DocumentError, ConfigError) as error:
                if not backoff:
                    log.error(
                        "cannot read the keys of %s again, so the broker keeps the present ones: %s",
                        self._url,
                        error,
                    )
                backoff = min(backoff * 2 or first_backoff, max_backoff)
            else:
                backoff = 0.0
                await asyncio.sleep(min(_EAGER_SECONDS, interval))


async def open_tokens(
    config: BrokerConfig,
    endpoints: Iterable[Endpoint],
    environment: Environment,
    on_stop: Callable[[Callable[[], Awaitable[None]]], None],
) -> Mapping[str, Tokens]:
    """Return a verifier of tokens for each listener that accepts OAUTHBEARER tokens, by listener name.

    Listeners with the same settings share the provider's keys.

    Args:
        config: settings of the broker.
        endpoints: the endpoints of all listeners.
        environment: provides the clock, and the threads that read keys.
        on_stop: registers a function to call when the broker stops, or when its start fails.

    Raises:
        ConfigError: the settings are invalid or incomplete, or the keys cannot be read.
    """
    by_listener: dict[str, Tokens] = {}
    by_settings: dict[tuple[object, ...], Tokens] = {}
    for endpoint in endpoints:
        if not endpoint.has_sasl:
            continue
        if "OAUTHBEARER" not in config.for_listener(endpoint.name).sasl_enabled_mechanisms:
            continue
        own = config.for_listener(endpoint.name, "OAUTHBEARER")
        if own.barnabas_oauthbearer_unsigned and not endpoint.is_loopback:
            raise ConfigError(
                f"barnabas.oauthbearer.unsigned=true is not allowed while {endpoint} is a listener: "
                f"every client that can reach it could log in as any user; set {_URL}"
            )
        settings = tuple(getattr(own, name) for name in _SETTINGS)
        tokens = by_settings.get(settings)
        if tokens is None:
            tokens = by_settings[settings] = await _open(own, environment, on_stop)
        by_listener[endpoint.name] = tokens
    return by_listener


async def _open(
    config: BrokerConfig, environment: Environment, on_stop: Callable[[Callable[[], Awaitable[None]]], None]
) -> Tokens:
    if config.barnabas_oauthbearer_unsigned:
        log.warning("OAUTHBEARER accepts unsigned tokens: any program on this machine can log in as any user")
        return UnsignedTokens(_rules(config), environment.clock.now_ms)
    url = config.sasl_oauthbearer_jwks_endpoint_url
    if url is None:
        raise ConfigError(
            f"sasl.enabled.mechanisms has OAUTHBEARER, and {_URL} is not set: without the keys of the "
            "identity provider no token can be checked"
        )
    rules = checked_rules(config)
    keys = TokenKeys(config, url, environment)
    on_stop(keys.stop)
    await keys.start()
    return SignedTokens(rules, lambda: keys.keys, keys.ask_again, environment.clock.now_ms)


def checked_rules(config: BrokerConfig) -> TokenRules:
    """Return the rules for signed tokens. Log a warning for each check that the settings disable.

    Raises:
        ConfigError: the expected issuer or audience is missing, and no setting allows this.
    """
    wanted = (
        ("issuer", config.sasl_oauthbearer_expected_issuer, config.sasl_oauthbearer_allow_unverified_issuer),
        (
            "audience",
            config.sasl_oauthbearer_expected_audience,
            config.sasl_oauthbearer_allow_unverified_audience,
        ),
    )
    for name, value, is_optional in wanted:
        if value:
            continue
        if not is_optional:
            raise ConfigError(
                f"OAUTHBEARER needs sasl.oauthbearer.expected.{name}: otherwise the broker would accept "
                f"tokens for other services; sasl.oauthbearer.allow.unverified.{name}=true allows it"
            )
        log.warning("OAUTHBEARER accepts tokens of any %s (sasl.oauthbearer.allow.unverified.%s)", name, name)
    return _rules(config)


def _rules(config: BrokerConfig) -> TokenRules:
    return TokenRules(
        config.sasl_oauthbearer_expected_issuer or None,
        config.sasl_oauthbearer_expected_audience,
        config.sasl_oauthbearer_clock_skew_seconds,
        config.sasl_oauthbearer_sub_claim_name,
        config.sasl_oauthbearer_scope_claim_name,
    )


def _read(url: str) -> list[Key]:
    return parse_keys(read_document(url))
