"""Who hears of which state of a session with the metadata store."""

from __future__ import annotations

import pytest

from barnabas.broker.metadata.session import StoreSession
from barnabas.broker.metadata.store import SessionState


def test_listener_hears_of_changes_only_and_of_nothing_after_the_end() -> None:
    session = StoreSession(SessionState.CONNECTED)
    heard: list[SessionState] = []
    session.on_state(heard.append)
    for state in (
        SessionState.CONNECTED,
        SessionState.SUSPENDED,
        SessionState.SUSPENDED,
        SessionState.OVERDUE,
        SessionState.CONNECTED,
        SessionState.FAILED,
        SessionState.CONNECTED,
    ):
        session.enter(state)
    assert [state.value for state in heard] == ["suspended", "overdue", "connected", "failed"]
    assert session.state is SessionState.FAILED


def test_listener_that_fails_does_not_keep_the_news_from_others(caplog: pytest.LogCaptureFixture) -> None:
    session = StoreSession(SessionState.CONNECTED)
    heard: list[SessionState] = []

    def broken(state: SessionState) -> None:
        raise RuntimeError("on purpose")

    session.on_state(broken)
    session.on_state(heard.append)
    session.enter(SessionState.LOST)
    assert heard == [SessionState.LOST]
    assert "on purpose" in caplog.text


def test_listener_that_closes_the_store_has_the_last_word() -> None:
    session = StoreSession(SessionState.CONNECTED)
    heard: list[SessionState] = []
    session.on_state(lambda _: session.enter(SessionState.CLOSED))
    session.on_state(heard.append)
    session.enter(SessionState.LOST)
    assert heard == [SessionState.CLOSED]
