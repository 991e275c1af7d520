"""Compares a real classic group with the table of its states and events."""

from __future__ import annotations

from itertools import product

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator.groups.classic.states import (
    NEXT_STATE,
    TABLE,
    Action,
    Event,
    GroupState,
    IllegalEvent,
    action_for,
)
from barnabas.broker.coordinator.groups.codec import GroupRecord

PAIRS = list(product(GroupState, Event))
LEGAL = [(state, event) for state, event in PAIRS if isinstance(TABLE[state][event], Action)]


class Walk:
    """A group with a leader, a follower that has not sent its SyncGroup, and a static member."""

    def __init__(self, groups):
        self.groups = groups
        ((_, self.shard),) = groups.coordinator.active_shards()
        #: the request that the event consists of, if it has not been answered at once
        self.task = None
        self.code = ErrorCode.NONE

    async def reach(self, state):
        groups = self.groups
        self.leader, joining = await groups.new_member(client="leader")
        self.follower, also_joining = await groups.new_member(client="follower")
        static = groups.join(instance="static")
        await joining, await also_joining
        self.static, self.generation = (await static).member_id, (await static).generation_id
        self.group = groups.coordinator.group("g")
        self.member = self.group.members.get(self.follower)
        if state is GroupState.COMPLETING_REBALANCE:
            return
        await groups.sync(self.leader, self.generation, {self.follower: b"all"})
        if state is GroupState.PREPARING_REBALANCE:
            await groups.new_member(client="fourth")
        if state in (GroupState.EMPTY, GroupState.DEAD):
            await groups.leave((self.leader, None), (self.follower, None), ("", "static"))
        if state is GroupState.DEAD:
            assert await groups.delete() is ErrorCode.NONE

    async def bring(self, event):
        groups, rebalance, group = self.groups, self.shard._rebalance, self.group
        match event:
            case Event.MEMBERS_CHANGED if group.state is GroupState.DEAD:
                assert rebalance.advance(group, "a session timed out") == []
            case Event.MEMBERS_CHANGED:
                _, self.task = await groups.new_member(client="another")
            case Event.FOLLOWER_REPEATS:
                self.task = groups.join(self.follower)
            case Event.LEADER_REPEATS:
                self.task = groups.join(self.leader)
            case Event.SUCCESSOR:
                self.task = groups.join(instance="static")
            case Event.SYNC:
                self.task = groups.sync(self.follower, self.generation)
            case Event.NOT_STORED:
                groups.log.failure = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
                assert await groups.error(groups.sync(self.leader, self.generation)) is not ErrorCode.NONE
            case Event.HEARTBEAT:
                self.code = await groups.heartbeat(self.follower, self.generation)
            case Event.COMMIT:
                self.code = await groups.commit({("t", 0): 1}, self.follower, self.generation)
            case Event.FEWER_AWAITED:
                assert rebalance.fewer_awaited(group) == []
            case Event.JOIN_TIME_OVER:
                assert rebalance._join_time_over(group) == []
            case Event.SYNC_TIME_OVER:
                rebalance._expire_syncs(group, group.generation)
            case Event.STORED:
                value = group.to_record({}, list(group.members))
                value.members = value.members or [self.member.to_record("range", b"")]
                self.shard.replay(GroupRecord("g", value))
            case Event.EMPTIED:
                self.shard.replay(GroupRecord("g", group.empty_record(1)))
            case Event.DELETED:
                self.shard.replay(GroupRecord("g", None))
        if self.task is not None:
            await self.groups.heartbeat("nobody", 0)  # a turn of the loop


def test_table_has_every_state_and_every_event():
    assert set(TABLE) == set(GroupState)
    assert all(set(row) == set(Event) for row in TABLE.values())


@pytest.mark.parametrize(("state", "event"), [pair for pair in PAIRS if pair not in LEGAL])
def test_illegal_event_is_refused_and_says_why(state, event):
    reason = TABLE[state][event]
    with pytest.raises(IllegalEvent, match=f"{event.value} in state {state.value}: {reason}"):
        action_for(state, event)


@pytest.mark.parametrize(("state", "event"), LEGAL)
def test_group_does_what_the_table_says(coordinate, state, event):
    action = TABLE[state][event]

    async def scenario(groups):
        walk = Walk(groups)
        await walk.reach(state)
        assert walk.group.state is state
        await walk.bring(event)
        assert walk.group.state is NEXT_STATE.get(action, state)
        answered = walk.task is not None and walk.task.done()
        if action is Action.REFUSE:
            code = await groups.error(walk.task) if walk.task else walk.code
            assert code is ErrorCode.REBALANCE_IN_PROGRESS
        elif action is Action.ACCEPT:
            code = await groups.error(walk.task) if walk.task else walk.code
            assert code is ErrorCode.NONE
        elif action is Action.REPEAT or action is Action.REPLACE:
            assert answered and walk.task.result().generation_id == walk.generation
        elif action in (Action.CHECK_JOINED, Action.PREPARE, Action.AWAIT_ASSIGNMENT):
            assert not answered
        if walk.task is not None:
            walk.task.cancel()

    coordinate(scenario)


def test_every_action_and_every_next_state_is_reached():
    used = {TABLE[state][event] for state, event in LEGAL}
    assert used == set(Action)
    assert {NEXT_STATE[action] for action in used if action in NEXT_STATE} == set(GroupState)
