"""The listeners that get each state of a session with the metadata store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.metadata.session import StoreSession, Watches
from barnabas.broker.metadata.store import Event, SessionState
from barnabas.broker.metadata.tree import check_path


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


@pytest.mark.parametrize("others", [0, 10], ids=["few watchers", "many watchers"])
@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("/a/b", ["/a/b", "/a", "/"]),
        ("/a/bc/d", ["/a", "/"]),
        ("/ab", ["/"]),
        ("/a", ["/a", "/"]),
        ("/", ["/"]),
    ],
)
def test_watchers_hear_of_their_node_and_all_below_it_the_nearest_first(others, changed, expected) -> None:
    watches = Watches()
    heard: list[str] = []
    for path in ("/", "/a", "/a/b", *(f"/other-{number}" for number in range(others))):
        watches.add(path, lambda _event, _changed, path=path: heard.append(path))
    watches.report(Event.CHANGED, changed)
    assert heard == expected


PARTS = st.text(st.sampled_from("ab./\0\n"), max_size=6)


@given(PARTS)
def test_a_path_has_parts_that_name_something(text) -> None:
    parts = text.split("/")
    is_path = (
        not parts[0]
        and len(parts) > 1
        and not any(part in ("", ".", "..") for part in parts[1:])
        and "\0" not in text
    )
    if is_path:
        check_path(text)
    else:
        with pytest.raises(ValueError, match="is not a path"):
            check_path(text)
