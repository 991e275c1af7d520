"""The TLS keys of the listeners, which the broker can replace while it runs."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import Any, NamedTuple

from barnabas.base.environment.blocking import Pool
from barnabas.base.errors import ConfigError
from barnabas.base.tasks import start_task
from barnabas.base.text import logger_of
from barnabas.base.tls.certificates import lost_names
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.network.tls import key_source, renew_key, tls_context, trial_certificate
from barnabas.broker.view import BrokerView

log = logger_of(__name__)

#: interval between checks of the files, in milliseconds
CHECK_MS = 5_000
_DAY = 86_400.0
#: largest number of attempts to read files that change meanwhile
_MAX_READINGS = 5
_WARN_BEFORE_DAYS = 30
#: largest number of missing names in an error message
_MAX_NAMED = 5


class _Loaded(NamedTuple):
    """A TLS context from the key files, with its certificate and trusted CAs, after a test handshake."""

    context: ssl.SSLContext
    #: certificate that clients receive, in DER
    certificate: bytes
    trusted: frozenset[bytes]


class ListenerKeys:
    """Holds the TLS keys of each listener with TLS.

    Args:
        view: settings of this broker.
        listeners: names of the listeners with TLS.

    Raises:
        ConfigError: the key files of a listener cannot be used.
    """

    def __init__(self, view: BrokerView, listeners: Iterable[str]) -> None:
        self._by_listener = {name: TlsKeys(view, name) for name in listeners}

    def of(self, listener: str) -> TlsKeys:
        """Return the TLS keys of a listener with TLS."""
        return self._by_listener[listener]

    def check_now(self, threads: Pool) -> None:
        """Start to check the files of all listeners for new keys, and return (`TlsKeys.check_now`).

        `threads` read the files later.
        """
        for keys in self._by_listener.values():
            keys.check_now(threads)

    async def check(self, threads: Pool, *, is_start: bool = False) -> None:
        """Read the key files of all listeners, and use changed keys for new connections (`TlsKeys.check`).

        Args:
            threads: threads that read the files.
            is_start: whether the broker starts. If false, a new certificate must have the subject and the
                names of the present one (KIP-978).
        """
        for keys in self._by_listener.values():
            await keys.check(threads, is_start=is_start)

    async def try_out(self, config: BrokerConfig, threads: Pool) -> None:
        """Check that the listeners could use the keys that `config` names. Raises ConfigError if not."""
        for name, keys in self._by_listener.items():
            await threads.run(_try, config.for_listener(name), keys.certificate)


class TlsKeys:
    """Holds the TLS context for new connections of a listener, and renews it when the key files change.

    Each new key must pass a test handshake. If a new key fails, the present key stays in use. For example,
    the test fails while only one of two new files is written. Open connections keep their context.

    Args:
        view: settings of this broker.
        listener: listener that uses the keys.

    Raises:
        ConfigError: the files cannot be used.
    """

    def __init__(self, view: BrokerView, listener: str) -> None:
        self._view = view
        self._listener = listener
        self._now = _load(self._config)
        #: the files are read by one at a time: what was read earlier must not be taken over later
        self._turn = asyncio.Lock()
        #: somebody has asked, and the files have not been read since
        self._is_wanted = False
        self._asked: asyncio.Task[None] | None = None
        #: error of the last attempt; "" after a success
        self._refused = ""
        self._warned_at: float | None = None
        #: contexts of this broker as a client, which show the same key
        self._as_client: list[ssl.SSLContext] = []
        self._warn_of_expiry()

    @property
    def _config(self) -> BrokerConfig:
        return self._view.config.for_listener(self._listener)

    def context(self) -> ssl.SSLContext:
        """Return the TLS context for the next connection."""
        return self._now.context

    @property
    def certificate(self) -> bytes:
        """Certificate that new connections receive, in DER."""
        return self._now.certificate

    def shown_by(self, context: ssl.SSLContext) -> None:
        """Register a TLS context that must always have the same key as new connections of the listener.

        When a later `check` finds a new key, it also loads the key into `context`. This call does not load
        the present key. The broker uses `context` for its connections to other brokers.
        """
        self._as_client.append(context)

    def check_now(self, threads: Pool) -> None:
        """Start a `check` in a new task, in which `threads` read the files. Return before it has run.

        Do nothing if an earlier call has started a check that has not begun yet.
        """
        if not self._is_wanted:
            self._is_wanted = True
            self._asked = start_task(self.check(threads), f"reading the key of listener {self._listener}")

    async def check(self, threads: Pool, *, is_start: bool = False) -> None:
        """Read the key files in a thread, and use a changed key for new connections.

        If the key cannot be used, log the reason and keep the present key. The new certificate must have the
        subject and all names of the present one. The settings ``ssl.allow.dn.changes`` and
        ``ssl.allow.san.changes`` can allow a change (KIP-978).

        Args:
            threads: threads that read the files.
            is_start: True while the broker starts. The new certificate can then have any subject and names.
        """
        async with self._turn:
            self._is_wanted = False
            await self._check(threads, is_start=is_start)

    async def _check(self, threads: Pool, *, is_start: bool) -> None:
        config = self._config
        try:
            found = await threads.run(_load, config)
            if not is_start:
                _check_names(self._now.certificate, found.certificate, config)
        except ConfigError as error:
            if str(error) != self._refused:
                self._refused = str(error)
                log.error(
                    "cannot renew the key of the listener %s, the present one stays in use: %s",
                    self._listener,
                    error,
                )
            return
        self._refused = ""
        if found[1:] != self._now[1:]:
            for context in self._as_client:
                await threads.run(renew_key, context, config)
            self._now = found
            self._warned_at = None
            log.info(
                "listener %s has read its certificates again; its own is valid until %s",
                self._listener,
                _expiry(found.certificate).date(),
            )
        self._warn_of_expiry()

    def _warn_of_expiry(self) -> None:
        now = self._view.clock.monotonic()
        if self._warned_at is not None and now - self._warned_at < _DAY:
            return
        self._warned_at = now
        expiry = _expiry(self._now.certificate)
        days_left = (expiry.timestamp() - self._view.clock.now_ms() / 1000) / _DAY
        if days_left < 0:
            log.error(
                "the certificate of the listener %s expired on %s: clients reject it",
                self._listener,
                expiry.date(),
            )
        elif days_left < _WARN_BEFORE_DAYS:
            log.warning(
                "the certificate of the listener %s expires in %d days, on %s: replace it",
                self._listener,
                days_left,
                expiry.date(),
            )


def _load(config: BrokerConfig) -> _Loaded:
    """Load and test the key files.

    If a file changes meanwhile, try again, at most `_MAX_READINGS` times.

    Raises:
        ConfigError: the files are invalid, or they change during each attempt.
    """
    certificate = trial_certificate(config)
    for _ in range(_MAX_READINGS):
        context = tls_context(config)
        before, certificate = certificate, trial_certificate(config)
        if before == certificate:  # else the context may have the key from before
            return _Loaded(context, certificate, frozenset(context.get_ca_certs(binary_form=True)))
    raise ConfigError(f"{key_source(config)} changes while it is read")


def _try(config: BrokerConfig, present: bytes) -> None:
    """Check that a listener could use the key that `config` names from now on.

    `present` is the certificate that the listener uses now, in DER.

    Raises:
        ConfigError: the key files cannot be used. Or the new certificate lacks the subject or a name of the
            present one, and the settings do not allow that.
    """
    _check_names(present, _load(config).certificate, config)


def _check_names(before: bytes, after: bytes, config: BrokerConfig) -> None:
    """Check that a new certificate has the subject and all names of the present one.

    Raise ConfigError if it does not, unless the settings ``ssl.allow.dn.changes`` (subject) and
    ``ssl.allow.san.changes`` (names) allow it.

    Args:
        before: the present certificate, in DER.
        after: the new certificate, in DER.
        config: settings of the listener.
    """
    if before == after or (config.ssl_allow_dn_changes and config.ssl_allow_san_changes):
        return
    is_other, lost = lost_names(before, after)
    if is_other and not config.ssl_allow_dn_changes:
        raise ConfigError(
            f"the certificate of {key_source(config)} has another subject: ssl.allow.dn.changes=true, or a "
            "restart, allows that"
        )
    if lost and not config.ssl_allow_san_changes:
        raise ConfigError(
            f"the certificate of {key_source(config)} lacks {', '.join(lost[:_MAX_NAMED])}, which the "
            "present one names: ssl.allow.san.changes=true, or a restart, allows that"
        )


def _expiry(certificate: bytes) -> Any:
    """Return the time (UTC) at which a certificate expires."""
    from cryptography import x509

    return x509.load_der_x509_certificate(certificate).not_valid_after_utc
