"""The rebalance of a classic group: prepare, join, sync. `states.py` has the states and the events.

A rebalance begins when the membership or a member's metadata changes. Its join phase waits for all members,
at most for the longest rebalance timeout. At the end of the phase, the coordinator removes dynamic members
that have not joined. The leader gets the list of members. The coordinator stores the leader's assignment
before any member gets its partitions: only the replay of that record makes the group STABLE.

If the assignment cannot be stored, the rebalance ends with an error for all members, as in Kafka. The
coordinator delays the next rebalance, for longer after each failure, even if members retry sooner.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.text import logger_of
from barnabas.broker.coordinator.backoff import MAX_MS, backoff_ms
from barnabas.broker.coordinator.contract import Result
from barnabas.broker.coordinator.groups.classic.group import ClassicGroup
from barnabas.broker.coordinator.groups.classic.member import ClassicMember
from barnabas.broker.coordinator.groups.classic.session_timeouts import SessionTimeouts, Step
from barnabas.broker.coordinator.groups.classic.states import Action, Event, GroupState
from barnabas.broker.coordinator.groups.codec import GroupRecord
from barnabas.broker.coordinator.timers import Timers
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.join_group import JoinGroupResponse
from barnabas.kafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

logger = logger_of(__name__, is_limited=True)

#: the shortest time until missing members are checked again, whatever timeout they requested
_MIN_WAIT_MS = 500


_TOO_LARGE = "the assignment is larger than max.message.bytes of __consumer_offsets allows"


class Rebalance:
    """Runs the rebalances of one shard's groups.

    Methods that return records do not append them: the caller must. The list is often empty.

    Args:
        view: settings and clock of the broker.
        timers: the timers of the shard.
        max_bytes: returns the size of the largest batch that can be appended, in bytes.
        write: called with a group id and a function without arguments. It calls the function under the
            group's lock, and appends the records that the function returns.
        sessions: the session timeouts of members.
    """

    def __init__(
        self,
        view: BrokerView,
        timers: Timers,
        max_bytes: Callable[[], int],
        write: Step,
        sessions: SessionTimeouts,
    ) -> None:
        self._view = view
        self._timers = timers
        self._max_bytes = max_bytes
        self._write = write
        self._sessions = sessions

    # --- join ---

    def advance(self, group: ClassicGroup, reason: str) -> list[GroupRecord]:
        """Handle `Event.MEMBERS_CHANGED`: begin a rebalance, or continue the one in progress.

        `reason` is the cause of a new rebalance, for the log.
        """
        return self.act(group, group.react(Event.MEMBERS_CHANGED), reason)

    def act(self, group: ClassicGroup, action: Action, reason: str) -> list[GroupRecord]:
        """Execute PREPARE (begin a rebalance) or CHECK_JOINED (complete the join phase if all have joined).

        For any other action, do nothing and return no records. `reason` is the cause of a new rebalance, for
        the log.
        """
        if action is Action.PREPARE:
            return self._prepare(group, reason)
        if action is Action.CHECK_JOINED:
            return self._check_joined(group)
        return []

    def _prepare(self, group: ClassicGroup, reason: str) -> list[GroupRecord]:
        """Begin a rebalance: all members must join again. `reason` is its cause, for the log.

        If all members have already joined again, complete the join phase.
        """
        logger.log(
            _level(group),
            "group %s, generation %d: rebalancing (%s)",
            group.group_id,
            group.generation,
            reason,
        )
        if group.has(GroupState.COMPLETING_REBALANCE):
            self._refuse_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
        self._timers.cancel(_sync_key(group))
        initial = group.has(GroupState.EMPTY)
        group.enter(Action.PREPARE, self._view.clock.now_ms())
        if initial:
            delay = self._view.config.group_initial_rebalance_delay_ms
            self._wait_for_first_members(group, delay, max(group.rebalance_timeout_ms - delay, 0))
            return []
        if group.all_joined and not group.is_held:
            return self._complete_join(group)
        self._schedule_join(group, max(group.rebalance_timeout_ms, _MIN_WAIT_MS))
        return []

    def _prepare_held(self, group: ClassicGroup, error: KafkaError) -> None:
        """Begin a rebalance, because an assignment could not be stored. `error` is the cause, for the log.

        The join phase of this rebalance has a shortest duration, which grows with each failure.
        """
        group.store_failures += 1
        pause_ms = backoff_ms(group.store_failures)
        if group.store_failures == 1:
            logger.warning(
                "group %s: the assignment of generation %d cannot be stored; it rebalances until it can,"
                " every %.1f to %.1f s: %s",
                group.group_id,
                group.generation,
                pause_ms / 1000,
                MAX_MS / 1000,
                error,
            )
        group.is_held = True
        self.act(group, group.react(Event.NOT_STORED), "its assignment could not be stored")
        release = partial(self._release, group)
        self._timers.set(_hold_key(group), pause_ms, lambda: self._write(group.group_id, release))

    def _release(self, group: ClassicGroup) -> list[GroupRecord]:
        group.is_held = False
        return self.fewer_awaited(group)

    def fewer_awaited(self, group: ClassicGroup) -> list[GroupRecord]:
        """Handle `Event.FEWER_AWAITED`: a pending member was removed, or a pause after a failure is over."""
        return self.act(group, group.react(Event.FEWER_AWAITED), "")

    def _check_joined(self, group: ClassicGroup) -> list[GroupRecord]:
        """Complete the join phase if all members have joined and no initial delay or pause is running."""
        if group.previous_state is not GroupState.EMPTY and group.all_joined and not group.is_held:
            return self._complete_join(group)
        return []

    def _join_time_over(self, group: ClassicGroup) -> list[GroupRecord]:
        if group.react(Event.JOIN_TIME_OVER) is Action.COMPLETE_JOIN:
            return self._complete_join(group)
        return []

    def _complete_join(self, group: ClassicGroup) -> list[GroupRecord]:
        """Complete the join phase: remove dynamic members that have not joined, and answer JoinGroup.

        Return the records to append. There are four cases:

        - The last assignment could not be stored, and the pause after this failure runs (`group.is_held`):
          only extend the join phase, and return no records.
        - No member is left: return the record of the empty group.
        - Only static members are left, and none has joined: extend the join phase, and return no records.
        - In all other cases: begin the next generation, and return no records.
        """
        self._timers.cancel(_join_key(group))
        if group.is_held:  # a rebalance timeout may be shorter than that
            self._schedule_join(group, MAX_MS)
            return []
        for member in group.members:
            if member.join is not None or member.instance_id is not None:
                continue
            logger.info(
                "group %s: member %s did not rejoin in time and was removed", group.group_id, member.member_id
            )
            self.forget(group, member)
        if not group.members:
            logger.log(_level(group), "group %s is empty", group.group_id)
            # If the record cannot be stored, the timer repeats this step.
            group.store_failures += 1
            self._schedule_join(group, MAX_MS)
            return [GroupRecord(group.group_id, group.empty_record(self._view.clock.now_ms()))]
        if not group.elect_joined_leader():
            # There are only static members, and none has joined: wait for their session timeouts.
            self._schedule_join(group, max(group.rebalance_timeout_ms, _MIN_WAIT_MS))
            return []
        group.next_generation(self._view.clock.now_ms())
        logger.log(
            _level(group),
            "group %s: generation %d with %d members",
            group.group_id,
            group.generation,
            len(group.members),
        )
        for member in group.members:
            member.is_new = False
            self._sessions.keep_alive(group, member)
            group.members.answer_join(member, group.join_response(member))
        generation = group.generation
        self._timers.set(
            _sync_key(group),
            group.rebalance_timeout_ms,
            lambda: self._write(group.group_id, lambda: self._expire_syncs(group, generation)),
        )
        return []

    def _wait_for_first_members(self, group: ClassicGroup, delay: int, remaining: int) -> None:
        """Extend the join phase of an empty group by `delay` ms, so that more members join in one rebalance.

        While new members arrive, extend the phase again, by `remaining` ms at most.
        """

        def fire() -> list[GroupRecord]:
            if group.new_member_added and remaining > 0:
                group.new_member_added = False
                again = min(self._view.config.group_initial_rebalance_delay_ms, remaining)
                self._wait_for_first_members(group, again, max(remaining - delay, 0))
                return []
            return self._join_time_over(group)

        self._timers.set(_join_key(group), delay, lambda: self._write(group.group_id, fire))

    def _schedule_join(self, group: ClassicGroup, delay_ms: int) -> None:
        step = partial(self._join_time_over, group)
        self._timers.set(_join_key(group), delay_ms, lambda: self._write(group.group_id, step))

    # --- sync ---

    def sync(
        self, group: ClassicGroup, member: ClassicMember, request: SyncGroupRequest
    ) -> Result[SyncGroupResponse]:
        """Handle a member's SyncGroup in the current generation.

        The leader's request contains the assignment, which is stored. A follower's response waits until the
        assignment is stored. If the assignment cannot be stored, the follower gets an error.

        Raises:
            KafkaError: REBALANCE_IN_PROGRESS, the members must join again; for the leader, an error of the
                append, or UNKNOWN_SERVER_ERROR if the assignment is too large.
        """
        action = group.react(Event.SYNC)
        if action is Action.REFUSE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._synced(group, member)
        if action is Action.ACCEPT:
            self._sessions.keep_alive(group, member)
            return Result(_assigned(group, member))
        member.answer_sync(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        if not group.is_leader(member):
            member.sync = asyncio.get_running_loop().create_future()
            return Result(member.sync)
        failures = group.store_failures
        waiting: list[tuple[ClassicMember, asyncio.Future[SyncGroupResponse]]] = []

        def then(error: KafkaError | None) -> SyncGroupResponse:
            self._sessions.keep_alive(group, member)
            if error is not None:
                self._refuse_syncs(group, error.code)
                self._prepare_held(group, error)
                raise error
            if failures:
                logger.info("group %s: its assignment is stored, after %d failures", group.group_id, failures)
            # Take them now: the next turn of the loop may begin the next rebalance, with other SyncGroups.
            waiting.extend((other, parked) for other in group.members if (parked := other.remove_sync()))
            for other, _ in waiting:
                self._sessions.keep_alive(group, other)
            return _assigned(group, member)

        def announce() -> None:
            # After the leader's answer, as in Kafka: clients can see the order.
            for other, parked in waiting:
                if not parked.done():
                    parked.set_result(_assigned(group, other))

        if sum(len(entry.assignment) for entry in request.assignments) > self._max_bytes():
            # The log would refuse the record, after several copies of it.
            return Result(then=lambda _: then(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, _TOO_LARGE)))
        assignments = {entry.member_id: entry.assignment for entry in request.assignments}
        value = group.to_record(assignments, list(group.members))
        return Result(records=[GroupRecord(group.group_id, value)], then=then, afterwards=announce)

    def _synced(self, group: ClassicGroup, member: ClassicMember) -> None:
        group.pending_sync.discard(member.member_id)
        if not group.pending_sync:
            self._timers.cancel(_sync_key(group))

    def _refuse_syncs(self, group: ClassicGroup, error: ErrorCode) -> None:
        for member in group.members:
            member.assignment = b""
            if member.answer_sync(SyncGroupResponse(error_code=error)):
                self._sessions.keep_alive(group, member)

    def _expire_syncs(self, group: ClassicGroup, generation: int) -> list[GroupRecord]:
        action = group.react(Event.SYNC_TIME_OVER)
        if generation != group.generation or action is Action.IGNORE:
            return []
        late = [member for member in group.members if member.member_id in group.pending_sync]
        if not late:
            return []
        for member in late:
            logger.info(
                "group %s: member %s did not send SyncGroup in time and was removed",
                group.group_id,
                member.member_id,
            )
            self.forget(group, member)
        return self.act(group, action, "members did not sync in time")

    # --- members ---

    def forget(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Remove a member from the group, cancel its session timeout, and answer its delayed requests."""
        self._sessions.unwatch(group, member.member_id)
        group.remove(member)

    def drop(self, group: ClassicGroup) -> None:
        """Cancel all timers of a group that was deleted or converted, and answer its delayed requests.

        The members get REBALANCE_IN_PROGRESS and retry.
        """
        self._timers.cancel(_join_key(group))
        self._timers.cancel(_sync_key(group))
        self._timers.cancel(_hold_key(group))
        for member_id in (*(member.member_id for member in group.members), *sorted(group.pending)):
            self._sessions.unwatch(group, member_id)
        again = ErrorCode.REBALANCE_IN_PROGRESS
        for member in group.members:
            group.members.answer_join(member, JoinGroupResponse(error_code=again, member_id=member.member_id))
            member.answer_sync(SyncGroupResponse(error_code=again))


def _assigned(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )


def _level(group: ClassicGroup) -> int:
    """Return the log level for a rebalance: DEBUG after a failure that was logged, INFO for any other."""
    return logging.DEBUG if group.store_failures else logging.INFO


def _hold_key(group: ClassicGroup) -> tuple[str, str]:
    return "hold", group.group_id


def _join_key(group: ClassicGroup) -> tuple[str, str]:
    return "join", group.group_id


def _sync_key(group: ClassicGroup) -> tuple[str, str]:
    return "sync", group.group_id
