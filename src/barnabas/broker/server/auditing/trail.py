"""Accepts audit entries on the event loop, and writes them in a thread. So no request waits for the file."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, NamedTuple, Protocol

from barnabas.base.environment.blocking import Pool
from barnabas.base.environment.environment import Environment
from barnabas.base.text import logger_of, shown
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.auditing.file import AuditFile
from barnabas.kafka.security.principal import Principal

log = logger_of("barnabas.audit", is_limited=True)

#: seconds for which repeated entries are counted instead of written
REPEATS_S = 10.0
#: largest number of different entries to recognise repetitions
_MAX_REPEATED = 1_000
#: largest number of entries that wait for the thread
_MAX_WAITING = 10_000
#: largest number of entries that the thread writes at a time
_MAX_AT_ONCE = 500
#: limits of entries per second on average, and of entries at once
_RATE, _BURST = 1_000.0, 5_000.0

#: failed logins and denials are counted when they repeat themselves; everything else is written each time
LOGIN, LOGIN_FAILED, DENIED, CHANGE = "login", "login failed", "denied", "change"
_REPEATABLE = frozenset({LOGIN_FAILED, DENIED})


class AuditedClient(Protocol):
    """The client whose login or request an audit entry records."""

    client_host: str
    principal: Principal
    listener: str


class _Repeated(NamedTuple):
    first: dict[str, Any]
    until: float
    times: list[int]


class AuditTrail:
    """Writes the audit log of a broker. Only the broker's event loop may use it.

    Denied operations also go to the broker's own log, even without an audit file.

    Args:
        config: settings of the broker; ``barnabas.audit.*`` apply.
        environment: provides the file system, the thread and the clock.

    Raises:
        ConfigError: the file cannot be written.
    """

    def __init__(self, config: BrokerConfig, environment: Environment) -> None:
        self._broker = config.node_id
        self._clock = environment.clock
        self._file: AuditFile | None = None
        self._thread: Pool | None = None
        if config.barnabas_audit_file is not None:
            self._file = AuditFile(
                environment.filesystem,
                config.barnabas_audit_file,
                config.barnabas_audit_file_max_bytes,
                config.barnabas_audit_files,
            )
            self._thread = environment.blocking.pool("audit", 1)
        self._waiting: list[dict[str, Any]] = []
        self._writing: asyncio.Future[None] | None = None
        self._repeated: dict[tuple[str, ...], _Repeated] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        #: entries dropped because of the rate limit or a failed write, by event
        self._omitted: Counter[str] = Counter()
        self._credit = _BURST
        self._credited_at = self._clock.monotonic()
        self._trouble = ""

    @property
    def has_file(self) -> bool:
        """Whether there is an audit file. Without one, only denials are logged, in the broker's log."""
        return self._file is not None

    def note(self, event: str, who: AuditedClient, client_id: str | None = None, **details: Any) -> None:
        """Record an event of a client. Without an audit file, only record denials, in the broker's log.

        If a denial or a failed login repeats itself within `REPEATS_S` seconds, it is only counted, and one
        later entry has the count. Above the rate limit, entries are not written. An entry of the event
        ``omitted`` has their number.

        Args:
            event: LOGIN, LOGIN_FAILED, DENIED or CHANGE.
            who: the client.
            client_id: client id of the request, if any.
            details: further fields of the entry, with short JSON values.
        """
        if self._file is None and event != DENIED:
            return
        entry: dict[str, Any] = {
            "time": self._clock.now_ms(),
            "event": event,
            "broker": self._broker,
            "principal": shown(who.principal),
            "host": who.client_host,
            "listener": who.listener,
        }
        if client_id:
            entry["client_id"] = shown(client_id)
        entry.update(details)
        if event in _REPEATABLE and self._repeats(entry):
            return
        if event == DENIED:
            log.info("denied a request of %s at %s: %s", who.principal, who.client_host, _words(details))
        self._add(entry)

    async def close(self) -> None:
        """Write all waiting entries, and close the audit file."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweep(at_end=True)
        if self._file is None or self._thread is None:
            return
        self._tell_omitted()
        self._write()
        while self._writing is not None:
            await asyncio.wait([self._writing])
        await self._thread.run(self._file.close)
        await self._thread.close()

    # --- what repeats itself ---

    def _repeats(self, entry: dict[str, Any]) -> bool:
        """Whether an entry repeats a recent one in all fields except the time.

        If the entry is a repetition, only count it. If it is new, later entries are compared with it for
        `REPEATS_S` seconds. At most `_MAX_REPEATED` entries are kept for this.
        """
        key = tuple(str(value) for name, value in entry.items() if name != "time")
        now = self._clock.monotonic()
        known = self._repeated.get(key)
        if known is not None and now < known.until:
            known.times[0] += 1
            return True
        if known is not None:
            self._summarize(known)
            del self._repeated[key]
        if len(self._repeated) < _MAX_REPEATED:
            self._repeated[key] = _Repeated(entry, now + REPEATS_S, [0])
            if self._sweeping is None:
                self._sweeping = asyncio.get_running_loop().call_later(REPEATS_S, self._sweep)
        return False

    def _sweep(self, *, at_end: bool = False) -> None:
        self._sweeping = None
        now = self._clock.monotonic()
        for key, known in list(self._repeated.items()):
            if at_end or now >= known.until:
                self._summarize(known)
                del self._repeated[key]
        if self._repeated and not at_end:
            self._sweeping = asyncio.get_running_loop().call_later(REPEATS_S, self._sweep)

    def _summarize(self, known: _Repeated) -> None:
        if known.times[0]:
            self._add({**known.first, "time": self._clock.now_ms(), "repeated": known.times[0]})

    # --- the file ---

    def _add(self, entry: dict[str, Any]) -> None:
        if self._file is None:
            return
        if not self._has_credit() or len(self._waiting) >= _MAX_WAITING:
            self._omitted[entry["event"]] += 1
            return
        self._tell_omitted()
        self._waiting.append(entry)
        self._write()

    def _has_credit(self) -> bool:
        now = self._clock.monotonic()
        self._credit = min(_BURST, self._credit + (now - self._credited_at) * _RATE)
        self._credited_at = now
        if self._credit < 1:
            return False
        self._credit -= 1
        return True

    def _tell_omitted(self) -> None:
        if self._omitted:
            omitted = {"time": self._clock.now_ms(), "event": "omitted", "broker": self._broker}
            self._waiting.append({**omitted, "events": dict(self._omitted)})
            self._omitted.clear()

    def _write(self) -> None:
        if self._writing is not None or not self._waiting or self._file is None or self._thread is None:
            return
        batch, self._waiting = self._waiting[:_MAX_AT_ONCE], self._waiting[_MAX_AT_ONCE:]
        self._writing = self._thread.run(self._file.append, batch)
        self._writing.add_done_callback(lambda done: self._written(batch, done))

    def _written(self, batch: list[dict[str, Any]], done: asyncio.Future[None]) -> None:
        self._writing = None
        error = None if done.cancelled() else done.exception()
        if error is not None:
            for entry in batch:
                if entry["event"] == "omitted":
                    self._omitted.update(entry["events"])
                else:
                    self._omitted[entry["event"]] += 1
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.error("cannot write the audit log; the missing entries are counted: %s", error)
        else:
            self._trouble = ""
        self._write()


def _words(details: dict[str, Any]) -> str:
    """Format denied items for the broker's log: ``Produce (topic orders: TOPIC_AUTHORIZATION_FAILED)``."""
    things = [
        " ".join(f"{name} {value}" for name, value in thing.items() if name != "error")
        + f": {thing.get('error', '')}"
        for thing in details.get("denied", ())
    ]
    return f"{details.get('request', '')} ({'; '.join(things).lstrip(': ')})"
