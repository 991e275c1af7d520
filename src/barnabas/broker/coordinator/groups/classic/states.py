"""The states of a classic group, its events, and the action for each pair of state and event.

    EMPTY or STABLE ──► PREPARING_REBALANCE ──► COMPLETING_REBALANCE ──► STABLE
                        (all join again)        (the leader assigns)

`TABLE` has the action for each pair; the other modules of this package execute it. A pair that cannot occur
has a text with the reason instead. `tests/unit/broker/coordinator/test_states.py` checks the whole table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias


class GroupState(Enum):
    """The states of a classic group, by the names that ListGroups and DescribeGroups show."""

    EMPTY = "Empty"
    #: the join phase: it completes when all members have joined again, or the rebalance timeout has passed
    PREPARING_REBALANCE = "PreparingRebalance"
    #: all members know the generation, and the leader's assignment is pending
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    #: deleted or converted; only earlier operations, which had to wait, still see it
    DEAD = "Dead"


class Event(Enum):
    """The events that can change a classic group or decide the response to a request."""

    #: a member joins, leaves, times out or changes its protocols
    MEMBERS_CHANGED = "members changed"
    #: a follower joins again with the same protocols, because the response was lost
    FOLLOWER_REPEATS = "follower repeats"
    #: the leader joins again with the same protocols: it requests a new rebalance
    LEADER_REPEATS = "leader repeats"
    #: a static member has restarted and joins with a new member id
    SUCCESSOR = "successor"
    #: a pending member was removed, or the pause after a failure is over
    FEWER_AWAITED = "fewer awaited"
    #: the rebalance timeout or the initial delay has passed
    JOIN_TIME_OVER = "join time over"
    SYNC = "sync"
    #: members have not sent SyncGroup within the rebalance timeout
    SYNC_TIME_OVER = "sync time over"
    #: the leader's assignment could not be stored
    NOT_STORED = "not stored"
    HEARTBEAT = "heartbeat"
    COMMIT = "commit"
    #: a generation with members was replayed
    STORED = "stored"
    #: a generation without members was replayed
    EMPTIED = "emptied"
    #: the group's tombstone was replayed
    DELETED = "deleted"


class Action(Enum):
    """The coordinator's actions in response to events."""

    #: begin a rebalance: all members have to join again
    PREPARE = "prepare"
    #: complete the join phase if all members have joined
    CHECK_JOINED = "check joined"
    #: complete the join phase: remove absent members and choose the generation
    COMPLETE_JOIN = "complete join"
    #: answer with the current generation again
    REPEAT = "repeat"
    #: replace the member by its successor; rebalance only if the group's protocol changes
    REPLACE = "replace"
    #: wait for the leader's assignment, or store it if the leader sends it
    AWAIT_ASSIGNMENT = "await assignment"
    #: answer from the stored generation
    ACCEPT = "accept"
    #: answer REBALANCE_IN_PROGRESS
    REFUSE = "refuse"
    INSTALL = "install"
    CLEAR = "clear"
    BURY = "bury"
    IGNORE = "ignore"


#: the state after an action; every other action leaves the state as it is
NEXT_STATE: Mapping[Action, GroupState] = {
    Action.PREPARE: GroupState.PREPARING_REBALANCE,
    Action.COMPLETE_JOIN: GroupState.COMPLETING_REBALANCE,
    Action.INSTALL: GroupState.STABLE,
    Action.CLEAR: GroupState.EMPTY,
    Action.BURY: GroupState.DEAD,
}

#: the reason that a pair of state and event cannot occur
Illegal: TypeAlias = str

_NO_MEMBERS = "an empty group has no member: the request fails with UNKNOWN_MEMBER_ID"
_UNREACHABLE = "no request reaches a dead group"
_LOCKED = "the leader's SyncGroup holds the group's lock until its assignment is stored or refused"
_DELETED = "a deleted group is replaced by a new one"

#: records are replayed in every state
_REPLAY: Mapping[Event, Action | Illegal] = {
    Event.STORED: Action.INSTALL,
    Event.EMPTIED: Action.CLEAR,
    Event.DELETED: Action.BURY,
}

TABLE: Mapping[GroupState, Mapping[Event, Action | Illegal]] = {
    GroupState.EMPTY: {
        Event.MEMBERS_CHANGED: Action.PREPARE,
        Event.FOLLOWER_REPEATS: _NO_MEMBERS,
        Event.LEADER_REPEATS: _NO_MEMBERS,
        Event.SUCCESSOR: _NO_MEMBERS,
        Event.FEWER_AWAITED: Action.IGNORE,
        Event.JOIN_TIME_OVER: Action.IGNORE,
        Event.SYNC: _NO_MEMBERS,
        Event.SYNC_TIME_OVER: Action.IGNORE,
        Event.NOT_STORED: _LOCKED,
        Event.HEARTBEAT: _NO_MEMBERS,
        Event.COMMIT: _NO_MEMBERS,
        **_REPLAY,
    },
    GroupState.PREPARING_REBALANCE: {
        Event.MEMBERS_CHANGED: Action.CHECK_JOINED,
        Event.FOLLOWER_REPEATS: Action.CHECK_JOINED,
        Event.LEADER_REPEATS: Action.CHECK_JOINED,
        Event.SUCCESSOR: Action.CHECK_JOINED,
        Event.FEWER_AWAITED: Action.CHECK_JOINED,
        Event.JOIN_TIME_OVER: Action.COMPLETE_JOIN,
        Event.SYNC: Action.REFUSE,
        Event.SYNC_TIME_OVER: Action.IGNORE,
        Event.NOT_STORED: _LOCKED,
        Event.HEARTBEAT: Action.REFUSE,
        Event.COMMIT: Action.ACCEPT,
        **_REPLAY,
    },
    GroupState.COMPLETING_REBALANCE: {
        Event.MEMBERS_CHANGED: Action.PREPARE,
        Event.FOLLOWER_REPEATS: Action.REPEAT,
        Event.LEADER_REPEATS: Action.REPEAT,
        # The leader may already have the old id, and would assign partitions to it.
        Event.SUCCESSOR: Action.PREPARE,
        Event.FEWER_AWAITED: Action.IGNORE,
        Event.JOIN_TIME_OVER: Action.IGNORE,
        Event.SYNC: Action.AWAIT_ASSIGNMENT,
        Event.SYNC_TIME_OVER: Action.PREPARE,
        Event.NOT_STORED: Action.PREPARE,
        Event.HEARTBEAT: Action.ACCEPT,
        Event.COMMIT: Action.REFUSE,
        **_REPLAY,
    },
    GroupState.STABLE: {
        Event.MEMBERS_CHANGED: Action.PREPARE,
        Event.FOLLOWER_REPEATS: Action.REPEAT,
        Event.LEADER_REPEATS: Action.PREPARE,
        Event.SUCCESSOR: Action.REPLACE,
        Event.FEWER_AWAITED: Action.IGNORE,
        Event.JOIN_TIME_OVER: Action.IGNORE,
        Event.SYNC: Action.ACCEPT,
        Event.SYNC_TIME_OVER: Action.PREPARE,
        Event.NOT_STORED: _LOCKED,
        Event.HEARTBEAT: Action.ACCEPT,
        Event.COMMIT: Action.ACCEPT,
        **_REPLAY,
    },
    GroupState.DEAD: {
        Event.MEMBERS_CHANGED: Action.IGNORE,
        Event.FOLLOWER_REPEATS: _UNREACHABLE,
        Event.LEADER_REPEATS: _UNREACHABLE,
        Event.SUCCESSOR: _UNREACHABLE,
        Event.FEWER_AWAITED: Action.IGNORE,
        Event.JOIN_TIME_OVER: Action.IGNORE,
        Event.SYNC: _UNREACHABLE,
        Event.SYNC_TIME_OVER: Action.IGNORE,
        Event.NOT_STORED: _LOCKED,
        Event.HEARTBEAT: _UNREACHABLE,
        Event.COMMIT: _UNREACHABLE,
        Event.STORED: _DELETED,
        Event.EMPTIED: _DELETED,
        Event.DELETED: _DELETED,
    },
}


class IllegalEvent(RuntimeError):
    """An event happened in a state in which it cannot occur."""


def action_for(state: GroupState, event: Event) -> Action:
    """Return the action for an event in a state.

    Raises:
        IllegalEvent: the pair cannot occur.
    """
    action = TABLE[state][event]
    if isinstance(action, Action):
        return action
    raise IllegalEvent(f"{event.value} in state {state.value}: {action}")
