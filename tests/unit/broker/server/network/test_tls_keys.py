"""Certificates that can replace others while a broker runs (KIP-978)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.views import view_of

from barnabas.base.environment.blocking import Threads
from barnabas.base.environment.clock import SystemClock
from barnabas.base.tls.certificates import Authority, describe
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.network.tls_keys import TlsKeys


@pytest.fixture
def authority() -> Authority:
    return Authority.create("tests", datetime.now(UTC))


def put(authority: Authority, path: Path, name: str, *hosts: str) -> None:
    path.write_bytes(authority.issue(name, hosts, datetime.now(UTC)).pem)


def renewed(path: Path, change: object, **settings: str) -> str:
    """Return the name in the shown certificate after `change` has changed the files."""
    config = BrokerConfig.from_text({"ssl.keystore.location": str(path), **settings})
    keys = TlsKeys(view_of(config=config, clock=SystemClock()), "SSL")
    change()  # type: ignore[operator]

    async def check() -> None:
        threads = Threads().pool("keys", 1)
        await keys.check(threads)
        await threads.close()

    asyncio.run(check())
    found = describe(keys.certificate)
    return f"{found.name} {','.join(found.hosts)}"


@pytest.mark.parametrize(
    ("name", "hosts", "settings", "shown", "told"),
    [
        ("broker", ("a", "b"), {}, "broker a,b", ""),
        ("broker", ("b", "a", "c"), {}, "broker b,a,c", ""),
        ("other", ("a", "b"), {}, "broker a,b", "has another subject: ssl.allow.dn.changes=true"),
        ("other", ("a", "b"), {"ssl.allow.dn.changes": "true"}, "other a,b", ""),
        (
            "broker",
            ("b",),
            {},
            "broker a,b",
            "lacks a, which the present one names: ssl.allow.san.changes=true",
        ),
        ("broker", ("b",), {"ssl.allow.dn.changes": "true"}, "broker a,b", "ssl.allow.san.changes"),
        ("broker", (), {"ssl.allow.san.changes": "true"}, "broker ", ""),
        ("other", ("c",), {"ssl.allow.san.changes": "true"}, "broker a,b", "ssl.allow.dn.changes"),
        ("other", ("c",), {"ssl.allow.san.changes": "true", "ssl.allow.dn.changes": "true"}, "other c", ""),
    ],
)
def test_a_certificate_for_others_needs_leave(
    tmp_path: Path,
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
    name: str,
    hosts: tuple[str, ...],
    settings: dict[str, str],
    shown: str,
    told: str,
) -> None:
    path = tmp_path / "broker.pem"
    put(authority, path, "broker", "a", "b")
    assert renewed(path, lambda: put(authority, path, name, *hosts), **settings) == shown
    refused = [record.getMessage() for record in caplog.records if "cannot renew" in record.getMessage()]
    assert len(refused) == bool(told)
    assert all(told in each for each in refused)


class At:
    """A clock that is `days` days ahead."""

    def __init__(self, days: float) -> None:
        self.days = days

    def now_ms(self) -> int:
        return int((datetime.now(UTC).timestamp() + self.days * 86_400) * 1000)

    def monotonic(self) -> float:
        return self.days * 86_400


@pytest.mark.parametrize(
    ("days", "level", "told"),
    [(9.5, None, ""), (10.5, "WARNING", "expires in 29 days"), (40.5, "ERROR", "expired on")],
)
def test_the_end_of_a_certificate_is_told_in_time_and_once_a_day(
    tmp_path: Path,
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
    days: float,
    level: str | None,
    told: str,
) -> None:
    path = tmp_path / "broker.pem"
    path.write_bytes(authority.issue("broker", ["a"], datetime.now(UTC), days=40).pem)
    config = BrokerConfig.from_text({"ssl.keystore.location": str(path)})
    clock = At(days)
    keys = TlsKeys(view_of(config=config, clock=clock), "SSL")

    async def check() -> None:
        threads = Threads().pool("keys", 1)
        try:
            await keys.check(threads)
            clock.days += 1.1
            await keys.check(threads)
        finally:
            await threads.close()

    asyncio.run(check())
    lines = [each for each in caplog.records if "the certificate of the listener SSL" in each.getMessage()]
    if level is None:  # until a day later
        assert [each.levelname for each in lines] == ["WARNING"]
    else:
        assert [each.levelname for each in lines] == [level, level]
        assert told in lines[0].getMessage()
