"""Share sessions: epochs, their connections, and their number."""

from __future__ import annotations

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.sharing import sessions as module
from barnabas.broker.sharing.sessions import FINAL_EPOCH, Member, ShareSessions, Target

A, B, OTHER = Member("g", "a"), Member("g", "b"), Member("h", "a")


class Connection:
    def __init__(self, connection_id):
        self.connection_id = connection_id
        self._callbacks = []
        self._is_closed = False

    def when_closed(self, callback):
        if self._is_closed:
            callback()
        else:
            self._callbacks.append(callback)

    def close(self):
        self._is_closed = True
        for callback in self._callbacks:
            callback()


class Sessions(ShareSessions):
    def __init__(self, max_sessions=10):
        super().__init__(lambda: max_sessions, lambda *ended: self.ended.append(ended))
        #: member, and whether it was the last one of its group
        self.ended = []


def code(call, *args, **options):
    with pytest.raises(KafkaError) as error:
        call(*args, **options)
    return error.value.code


def test_requests_count_the_epoch_up_from_one():
    sessions = Sessions()
    session = sessions.open(A, Connection(1))
    assert sessions.find(A, 1) is session and sessions.find(A, 2) is session
    assert code(sessions.find, A, 2) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert sessions.find(A, 3) is session


def test_the_epoch_after_the_last_one_is_one():
    sessions = Sessions()
    sessions.open(A, Connection(1)).epoch = 2**31 - 1
    assert sessions.find(A, 2**31 - 1).epoch == 1


def test_a_member_without_a_session_is_told_so():
    assert code(Sessions().find, A, 1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert code(Sessions().find, A, FINAL_EPOCH) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_the_close_of_a_connection_ends_its_sessions_and_no_others():
    sessions = Sessions()
    first, second = Connection(1), Connection(2)
    sessions.open(B, first)
    sessions.open(A, first)
    sessions.open(OTHER, second)
    first.close()
    assert sessions.ended == [(A, False), (B, True)]
    assert len(sessions) == 1


def test_a_connection_keeps_no_members_whose_sessions_have_ended():
    """A client can end a session and open one of another member, as often as it likes."""
    sessions = Sessions()
    first, second = Connection(1), Connection(2)
    for number in range(100):
        sessions.close(sessions.open(Member("g", f"m{number}"), first))
    sessions.open(A, first)
    session = sessions.open(A, second)
    assert sessions._connections == {1: set(), 2: {A}}
    first.close()
    second.close()
    assert not sessions.is_open(session)
    assert sessions._connections == {}


def test_a_session_is_open_until_another_one_replaces_it_or_it_ends():
    sessions = Sessions()
    first = sessions.open(A, Connection(1))
    assert sessions.is_open(first)
    second = sessions.open(A, Connection(2))
    assert not sessions.is_open(first) and sessions.is_open(second)
    sessions.close(second)
    assert not sessions.is_open(second)


def test_a_session_that_was_opened_again_elsewhere_outlives_the_first_connection():
    sessions = Sessions()
    first, second = Connection(1), Connection(2)
    sessions.open(A, first)
    session = sessions.open(A, second)
    first.close()
    assert sessions.find(A, 1) is session and not sessions.ended
    second.close()
    assert sessions.ended == [(A, True)]


def test_a_connection_that_has_closed_opens_no_session():
    sessions = Sessions()
    gone = Connection(1)
    gone.close()
    assert code(sessions.open, A, gone) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert len(sessions) == 0 and not sessions.ended
    assert code(sessions.find, A, 1) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_late_request_of_a_closed_connection_leaves_the_members_session_alone():
    sessions = Sessions()
    gone = Connection(1)
    gone.close()
    session = sessions.open(A, Connection(2))
    assert code(sessions.open, A, gone) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert sessions.find(A, 1) is session and not sessions.ended


def test_a_closed_session_does_not_end_twice():
    sessions = Sessions()
    connection = Connection(1)
    session = sessions.open(A, connection)
    sessions.close(session)
    sessions.close(session)
    connection.close()
    assert sessions.ended == [(A, True)]


def test_the_close_of_a_replaced_session_leaves_the_new_one():
    sessions = Sessions()
    earlier = sessions.open(A, Connection(1))
    later = sessions.open(A, Connection(1))
    sessions.close(earlier)
    assert sessions.find(A, 1) is later and not sessions.ended


def test_no_more_sessions_than_the_setting_allows():
    sessions = Sessions(max_sessions=1)
    connection = Connection(1)
    sessions.open(A, connection)
    assert code(sessions.open, B, connection) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.open(A, connection)  # its own may be replaced
    sessions.close(sessions.find(A, FINAL_EPOCH))
    sessions.open(B, connection)


def test_no_more_partitions_than_all_sessions_may_have_together(monkeypatch):
    monkeypatch.setattr(module, "MAX_PARTITIONS", 3)
    sessions = Sessions()
    first, second = sessions.open(A, Connection(1)), sessions.open(B, Connection(2))
    sessions.change(first, [Target(b"t", 0), Target(b"t", 1)], [])
    sessions.change(second, [Target(b"t", 0)], [])
    assert code(sessions.change, second, [Target(b"t", 1)], []) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert sessions.ended == [(B, False)]
    sessions.change(first, [], [Target(b"t", 0)])
    sessions.change(sessions.open(B, Connection(2)), [Target(b"t", 0), Target(b"t", 1)], [])


@pytest.mark.parametrize("member", [Member("", "a"), Member("g", ""), Member("g", "x" * 65)])
def test_an_impossible_member_is_refused(member):
    assert code(Sessions().open, member, Connection(1)) is ErrorCode.INVALID_REQUEST


def test_a_partition_that_was_served_has_its_next_turn_last():
    sessions = Sessions()
    session = sessions.open(A, Connection(1))
    targets = [Target(b"t", index) for index in range(3)]
    sessions.change(session, targets, [])
    session.move_to_end(targets[0])
    assert list(session.targets) == [*targets[1:], targets[0]]
    sessions.change(session, [], [targets[0]])
    session.move_to_end(targets[0])
    assert list(session.targets) == targets[1:]
