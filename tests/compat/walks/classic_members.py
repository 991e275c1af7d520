"""The members of one classic group at two brokers: their joins and syncs that wait, and the group's state."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.compat.scenarios.consumer_groups import describe as consumer_describe
from tests.compat.scenarios.consumer_groups import known_topic
from tests.compat.walks.late import Late, LateRequests
from tests.compat.walks.pair import Pair
from tests.compat.wire import Wire

from barnabas.base.errors import ErrorCode
from barnabas.broker.coordinator.groups.subscription import decode_assignment, encode_assignment
from barnabas.kafka.protocol.codec import encode
from barnabas.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.kafka.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.kafka.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.kafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.kafka.protocol.records.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
from barnabas.kafka.protocol.schema import Request

#: a member's ids at both brokers, which make them up
Ids: TypeAlias = tuple[str, ...]
#: partitions by topic
Owned: TypeAlias = dict[str, list[int]]

#: partitions by topic
TOPICS = {"t": 4, "u": 2}
#: the clients, and the instance ids that they have
CLIENTS = {"a": None, "b": None, "c": None, "d": "i", "e": "i", "f": "j"}
#: all in one order of preference, so that no vote for the protocol is a draw; the first three have "range"
PROTOCOLS = (("range",), ("range", "rr"), ("range", "rr", "sticky"), ("rr", "sticky"), ("rr",))
NO_IDS: Ids = ("", "")
STRANGER: Ids = ("nobody", "nobody")
#: timeouts that are longer than any walk
LONG_MS = (300_000, 600_000, 900_000)
#: the rebalance timeout of some walks
SHORT_MS = 2000
#: how long a broker may take for an answer that the other one has given
PATIENCE_SECONDS = 20.0
#: the state in which a request waits
_WAITS_IN: dict[type[Request], str] = {
    JoinGroupRequest: "PreparingRebalance",
    SyncGroupRequest: "CompletingRebalance",
}

_IDS_ARE_WRONG = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


@dataclass
class Client:
    """A client of the classic protocol."""

    name: str
    instance: str | None
    ids: Ids = NO_IDS
    generation: int = -1
    #: the protocol of the generation
    protocol: str | None = "range"
    #: the protocols of its last JoinGroup
    protocols: tuple[str, ...] = ("range",)
    topics: tuple[str, ...] = ("t",)
    owned: Owned = field(default_factory=dict)

    @property
    def client_id(self) -> str:
        """The same for all clients of an instance id: Kafka keeps the one of the first."""
        return self.instance or self.name


class ClassicMembers:
    """Clients of one group, and what the walk knows of the group."""

    def __init__(self, pair: Pair) -> None:
        self.pair, self.random = pair, pair.random
        for topic, partitions in TOPICS.items():
            pair.each(lambda wire, topic=topic, partitions=partitions: known_topic(wire, topic, partitions))
        self.clients = [Client(name, instance) for name, instance in CLIENTS.items()]
        self.late = LateRequests(pair)
        #: whether rebalances time out
        self.is_short = self.random.random() < 0.15
        #: the session timeouts to choose from
        self.sessions = LONG_MS
        #: whether all assignments are ones that a conversion can read
        self.converts = not self.is_short and self.random.random() < 0.6
        #: the earliest and the latest time at which the rebalance timeout ends that runs now, if one does
        self._end: tuple[float, float] | None = None
        self.state, self.protocol_type, self.generation = "Dead", "", 0
        #: whether the group is one of the consumer protocol, and whether it then has no members
        self.is_consumer = self.is_empty_consumer = False
        #: the members of the classic protocol, with their instance ids
        self.present: dict[Ids, str | None] = {}
        #: members that have only got a member id
        self.pending: set[Ids] = set()
        self.leaders = NO_IDS
        #: whether the leader has left, so that the brokers may choose different ones
        self.lost_leader = False
        #: whether the brokers have chosen different leaders
        self.is_split = False
        self._named = 0
        self._settled_at = time.monotonic()

    @property
    def exists(self) -> bool:
        return self.state != "Dead" or self.is_consumer

    # --- after each request ---

    def settle(self) -> None:
        """Wait until the same requests wait at both brokers, and compare the answers that have arrived.

        Compare the description of the group, too. If a rebalance timeout ends soon, wait for its end.
        """
        self._settle()
        if self._end is not None and time.monotonic() > self._end[0] - SHORT_MS / 2000:
            self.expire()

    def expire(self) -> None:
        """Wait until the rebalance timeout that runs has ended, if one does."""
        if self._end is None:
            return
        _, latest = self._end
        time.sleep(max(0.0, latest - time.monotonic()) + SHORT_MS / 4000)
        self._end, self.lost_leader = None, True
        self._settle(since=latest)

    @property
    def has_stood_still(self) -> bool:
        """Whether a rebalance timeout may have ended that the walk has not waited for."""
        return self._end is not None and time.monotonic() > self._end[0]

    def _settle(self, since: float | None = None) -> None:
        """Do the work of `settle` without timeouts. `since` is the time of the last change of the group."""
        state, generation = self.state, self.generation
        deadline = time.monotonic() + PATIENCE_SECONDS
        calm = 0
        while calm < 2 and time.monotonic() < deadline:
            has_arrived = self.late.poll()
            calm = calm + 1 if not has_arrived and self._is_settled() else 0
            time.sleep(0.002)
        answered = self.late.take_answered()
        for late in answered:
            self._name(late)
        for late in answered:
            self._compare(late)
        self._see()
        if (state, generation) != (self.state, self.generation) or since is not None:
            self._time(self._settled_at if since is None else since)
        self._settled_at = time.monotonic()
        if self.is_split:
            self.leave_all()
            self._settle()
        else:
            self._describe()

    def _time(self, since: float) -> None:
        """Learn when the rebalance timeout ends that has begun at `since` or later."""
        if self.state in _WAITS_IN.values() and self.is_short:
            self._end = since + SHORT_MS / 1000, time.monotonic() + SHORT_MS / 1000
        elif self.state != "Stable":  # in a stable group, the timeout goes on if a member has not synced
            self._end = None

    def _views(self) -> tuple[Any, ...]:
        request = DescribeGroupsRequest
        return self.pair.each(lambda wire: wire.ask(request(groups=[wire.name("g")]), 5).groups[0])

    def _is_settled(self) -> bool:
        """Whether both brokers have answered the same requests, and the others have to wait."""
        if any(late.is_answered != late.is_answered_by_both for late in self.late.waiting):
            return False
        mine, theirs = views = self._views()
        named = [
            [wire.name_of(member.member_id) for member in _in_order(wire, view.members)]
            for wire, view in zip(self.pair.wires, views, strict=True)
        ]
        if mine.group_state != theirs.group_state or named[0] != named[1]:
            return False
        present = {member.client_id for member in mine.members}
        waiting = [late for late in self.late.waiting if not late.is_answered]
        if not all(self._has_to_wait(late, mine.group_state, present) for late in waiting):
            return False
        # If all have joined, the brokers are about to answer.
        joins = [late for late in waiting if late.request is JoinGroupRequest]
        return not joins or len(joins) < len(mine.members) or bool(self.pending)

    def _has_to_wait(self, late: Late, state: str, present: set[str]) -> bool:
        is_leader = late.request is SyncGroupRequest and self._client_of(late).ids == self.leaders
        return state == _WAITS_IN[late.request] and late.client_id in present and not is_leader

    def _client_of(self, late: Late) -> Client:
        return next(client for client in self.clients if client.name == late.client)

    def _name(self, late: Late) -> None:
        """Learn the member id that an answer has."""
        mine, theirs = late.answers
        if late.request is not JoinGroupRequest or not late.is_answered_by_both:
            return
        if mine.error_code == theirs.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self._call((mine.member_id, theirs.member_id), self._client_of(late))

    def _call(self, ids: Ids, client: Client | None) -> None:
        """Name a member that the brokers have given these ids. It belongs to the client, if there is one."""
        if self.pair.wires[0].name_of(ids[0]) is None:
            self._named += 1
            for wire, member_id in zip(self.pair.wires, ids, strict=True):
                wire.call(member_id, f"{client.name if client else 'member'} {self._named}")
        if client is not None:
            client.ids = ids

    def _compare(self, late: Late) -> None:
        """Compare the answers of both brokers, and learn from them."""
        client, (mine, _) = self._client_of(late), late.answers
        leaders = NO_IDS
        if late.request is JoinGroupRequest and late.is_answered_by_both:
            leaders = self._without_own(late.answers, client)
        self.pair.compare(late.answers, late.told, decoded)
        if late.request is SyncGroupRequest:
            if not mine.error_code:
                client.owned = self._read(mine.assignment)
        elif mine.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.pending.add(client.ids)
        elif not mine.error_code:
            self.pending.discard(client.ids)
            client.generation, client.protocol = mine.generation_id, mine.protocol_name
            self.generation = max(self.generation, mine.generation_id)
            if leaders != NO_IDS:
                self.leaders, self.lost_leader = leaders, self.is_split
        elif mine.error_code in _IDS_ARE_WRONG and not self.is_member(client):
            self.leave_behind(client)

    def _without_own(self, answers: list[Any], client: Client) -> Ids:
        """Remove from answers to JoinGroup what each broker does in its own way. Return the leaders."""
        mine, theirs = answers
        leaders = (mine.leader, theirs.leader)
        named = [wire.name_of(leader) for wire, leader in zip(self.pair.wires, leaders, strict=True)]
        self.is_split |= self.lost_leader and named[0] != named[1]
        is_rejected = mine.error_code and mine.error_code != ErrorCode.MEMBER_ID_REQUIRED
        for answer in answers:
            if self.is_split:
                answer.leader, answer.members = "", []
            if is_rejected:
                answer.member_id = ""
            if self.topics_of(client.instance) is not None:
                answer.generation_id = mine.generation_id
        return leaders

    def leave_behind(self, client: Client) -> None:
        """Let a client forget its member id, except sometimes."""
        if self.random.random() < 0.8:
            client.ids, client.generation = NO_IDS, -1

    def _see(self) -> None:
        """Learn the state of the group. Members whose JoinGroup waits get their names here."""
        was_consumer = self.is_consumer
        views = self._views()
        members = [view.members for view in views]
        self.state, self.protocol_type = views[0].group_state, views[0].protocol_type
        self.is_consumer = self.is_empty_consumer = False
        if self.state == "Dead":
            self.pending.clear()
            groups = self.pair.each(lambda wire: wire.ask(consumer_describe(wire)).groups[0])
            self.is_consumer = not groups[0].error_code
            self.is_empty_consumer = groups[0].group_state == "Empty"
            members = [[each for each in group.members if not each.member_type] for group in groups]
        if self.state in ("Empty", "Dead"):
            self.lost_leader = self.is_consumer
        elif self.state == "Stable" and was_consumer:
            self.is_split = True  # each broker may have chosen another leader
        self.present = {}
        for both in zip(*map(_in_order, self.pair.wires, members), strict=False):
            ids = tuple(member.member_id for member in both)
            if self.pair.wires[0].name_of(ids[0]) is None:
                joining = [late for late in self.late.waiting if late.client_id == both[0].client_id]
                self._call(ids, self._client_of(joining[0]) if joining else None)
            member = both[0]
            self.present[ids] = member.instance_id if self.is_consumer else member.group_instance_id

    def _describe(self) -> None:
        rng, ask = self.random, self.pair.ask
        version = rng.choice((0, 3, 4, 5, 6))
        groups = rng.choice((["g"], ["g"], ["g", "none"]))
        operations = version >= 3 and rng.random() < 0.2

        def make(wire: Wire, _: int) -> Request:
            names = [wire.name(group) for group in groups]
            return DescribeGroupsRequest(groups=names, include_authorized_operations=operations)

        ask(make, "describe", decoded, version)
        if self.state == "Dead":
            ask(lambda wire, _: consumer_describe(wire), "describe (consumer)")

    def leave_all(self) -> None:
        """Let all members leave, for example because the brokers have chosen different leaders."""
        for client in self.clients:
            self.late.drop(client.name)
            client.ids, client.generation = NO_IDS, -1
        everyone = [*self.present, *sorted(self.pending)]
        self.pending.clear()

        def make(wire: Wire, number: int) -> Request:
            leavers = [MemberIdentity(member_id=ids[number]) for ids in everyone]
            return LeaveGroupRequest(group_id=wire.name("g"), members=leavers)

        self.pair.ask(make, "leave of all")
        self.is_split = self.lost_leader = False

    # --- join and sync ---

    def topics_of(self, instance: str | None) -> tuple[str, ...] | None:
        """Return the topics of the member of the consumer protocol with this instance id, if there is one."""
        raise NotImplementedError

    def _send(self, client: Client, make: Any, version: int, told: str) -> None:
        self.late.send(client.name, client.client_id, make, version, told)

    def any_client(self) -> Client:
        return self.random.choice(self.clients)

    def is_member(self, client: Client) -> bool:
        return client.ids in self.present or client.ids in self.pending

    def join(self) -> None:
        client, rng = self.any_client(), self.random
        if self.late.of(client.name):
            if rng.random() > 0.1 or client.ids == NO_IDS:
                return
            self.late.drop(client.name)  # Kafka does not answer the first one
        if rng.random() < 0.25:
            client.protocols = rng.choice(PROTOCOLS[:3] if self.converts else PROTOCOLS)
        if rng.random() < 0.2:
            client.topics = rng.choice((("t",), ("t",), ("t", "u"), ("u",), ("u",) if self.converts else ()))
        ids, instance = client.ids, client.instance
        dice = rng.random()
        if dice < 0.04:
            ids = STRANGER
        elif dice < 0.07 and instance:
            other = self.any_client()
            ids = STRANGER if other.ids in self.pending or other.instance == instance else other.ids
        elif dice < 0.15 and instance:
            ids = NO_IDS
        if instance and ids != NO_IDS and rng.random() < 0.03:
            instance = rng.choice(("k", "j"))
        self._join(client, ids, instance)

    def _join(self, client: Client, ids: Ids, instance: str | None) -> None:
        rng = self.random
        # Version 0 has no rebalance timeout.
        version = rng.choice((5, 6, 7, 8, 9) if instance else range(self.is_short, 10))
        if ids == NO_IDS and instance is None and (self.is_member(client) or self.is_consumer):
            return
        if ids != NO_IDS and self.is_empty_consumer:
            return
        if ids == NO_IDS and self.state == "Stable" and self._end is not None:
            return
        session, kind, protocols = rng.choice(self.sessions), "consumer", client.protocols
        if rng.random() < 0.02:
            session = rng.choice((1, 100_000_000))
        if (self.protocol_type == "connect" and rng.random() < 0.9) or rng.random() < 0.02 * self.exists:
            kind = "connect"
        if self.state == "Empty" and not self.converts and rng.random() < 0.1:
            kind = "connect"
        if self.exists and rng.random() < 0.03:
            kind, protocols = rng.choice((("", protocols), (kind, ()), (kind, ("other",))))
        if ids == NO_IDS:
            client.topics = self.topics_of(instance) or client.topics
        timeout = SHORT_MS if self.is_short else rng.choice(LONG_MS)
        metadata = self._subscription(client)

        def make(wire: Wire, number: int) -> Request:
            offered = [JoinGroupRequestProtocol(name=name, metadata=metadata(wire)) for name in protocols]
            return JoinGroupRequest(
                group_id=wire.name("g"),
                session_timeout_ms=session,
                rebalance_timeout_ms=timeout,
                member_id=ids[number],
                group_instance_id=instance,
                protocol_type=kind,
                protocols=offered,
            )

        told = f"{self.told(ids)} {instance} {kind} {protocols} {client.topics} session {session}"
        self._send(client, make, version, f"join v{version} of {client.name}: {told}")

    def _subscription(self, client: Client) -> Any:
        owned = client.owned if self.is_consumer else {}
        topics = client.topics

        def metadata(wire: Wire) -> bytes:
            message = ConsumerProtocolSubscription(
                topics=[wire.name(topic) for topic in topics],
                owned_partitions=[
                    TopicPartition(topic=wire.name(topic), partitions=parts) for topic, parts in owned.items()
                ],
            )
            return encode(message, 1, b"\0\1")

        return metadata

    def sync(self) -> None:
        rng = self.random
        members = [client for client in self.clients if client.ids in self.present]
        client = rng.choice(members) if members and rng.random() < 0.9 else self.any_client()
        if self.late.of(client.name):
            if rng.random() > 0.1:
                return
            self.late.drop(client.name)  # Kafka does not answer the first one
        ids, instance, generation = client.ids, client.instance, client.generation
        kind = self.protocol_type or "consumer"
        fields: dict[str, Any] = {"protocol_type": kind, "protocol_name": client.protocol}
        dice = rng.random()
        if dice < 0.05:
            generation += rng.choice((-1, 1))
        elif dice < 0.08:
            ids = STRANGER
        elif dice < 0.11:
            instance = rng.choice(("i", "j", None))
        elif dice < 0.17:
            fields = rng.choice((
                {**fields, "protocol_name": "other"}, {**fields, "protocol_type": "other"},
                {**fields, "protocol_name": None}, {**fields, "protocol_type": None},
            ))  # fmt: skip
        self._sync(client, ids, instance, generation, fields)

    def _sync(
        self,
        client: Client,
        ids: Ids,
        instance: str | None,
        generation: int,
        fields: dict[str, Any],
    ) -> None:
        rng = self.random
        version = rng.choice((3, 4, 5) if instance else range(6))
        given: list[tuple[Ids, Owned | bytes]] = []
        if client.ids == self.leaders or rng.random() < 0.05:
            given = self._assignments()

        def make(wire: Wire, number: int) -> Request:
            assignments = [
                SyncGroupRequestAssignment(member_id=to[number], assignment=_encoded(wire, parts))
                for to, parts in given
            ]
            return SyncGroupRequest(
                group_id=wire.name("g"),
                generation_id=generation,
                member_id=ids[number],
                group_instance_id=instance,
                assignments=assignments,
                **(fields if version >= 5 else {}),
            )

        told = f"sync v{version} of {client.name}: {self.told(ids)} {instance} generation {generation}"
        self._send(client, make, version, f"{told} {fields}: {[len(parts) for _, parts in given]}")

    def _assignments(self) -> list[tuple[Ids, Owned | bytes]]:
        """Return assignments that give each partition to one member, and sometimes other bytes."""
        rng, everyone = self.random, list(self.present)
        parts: dict[Ids, Owned] = {ids: {} for ids in everyone}
        for topic, partitions in TOPICS.items():
            for partition in range(partitions):
                if everyone and rng.random() < 0.9:
                    parts[rng.choice(everyone)].setdefault(topic, []).append(partition)
        given: list[tuple[Ids, Owned | bytes]] = [
            (ids, owned) for ids, owned in parts.items() if rng.random() < 0.95
        ]
        if not self.converts and rng.random() < 0.3:
            given = [(ids, rng.choice((b"", b"bytes", b"\xff" * 300))) for ids, _ in given]
        if rng.random() < 0.1:
            given.append((STRANGER, {}))
        return given

    def _read(self, assignment: bytes) -> Owned:
        """Return the partitions of an assignment by topic suffix."""
        try:
            entries = decode_assignment(bytes(assignment)).assigned_partitions
        except ValueError:
            return {}
        names = {self.pair.wires[0].name(topic): topic for topic in TOPICS}
        return {names[entry.topic]: sorted(entry.partitions) for entry in entries}

    def round(self) -> None:
        """Let the members join, and then sync, as clients do."""
        rng = self.random
        clients = rng.sample(self.clients, rng.randint(1, len(self.clients)))
        clients += [client for client in self.clients if self.is_member(client) and client not in clients]
        for _ in range(2):  # a new member joins twice
            for client in clients:
                if not self.late.of(client.name) and self._must_join(client):
                    self._join(client, client.ids, client.instance)
                    self.settle()
        members = [
            client for client in clients if client.ids in self.present and not self.late.of(client.name)
        ]
        for client in rng.sample(members, len(members)):
            if self.state == "CompletingRebalance" or self.is_consumer:
                kind = self.protocol_type or "consumer"
                fields = {"protocol_type": kind, "protocol_name": client.protocol}
                self._sync(client, client.ids, client.instance, client.generation, fields)
                self.settle()

    def _must_join(self, client: Client) -> bool:
        return self.state in ("PreparingRebalance", "Empty", "Dead") or client.ids not in self.present

    def told(self, ids: Ids) -> str:
        return self.pair.wires[0].name_of(ids[0]) or ids[0] or "''"


def _in_order(wire: Wire, members: list[Any]) -> list[Any]:
    """Sort members by their names; new ones by their client id."""
    return sorted(members, key=lambda member: (wire.name_of(member.member_id) or "", member.client_id))


def _encoded(wire: Wire, parts: Owned | bytes) -> bytes:
    if isinstance(parts, bytes):
        return parts
    return encode_assignment({wire.name(topic): frozenset(numbers) for topic, numbers in parts.items()}, 1)


def decoded(answer: Any) -> Any:
    """Return a plain answer with assignments as sets of partitions: Kafka has no order of topics."""
    if isinstance(answer, list):
        return [decoded(item) for item in answer]
    if isinstance(answer, dict):
        return {
            name: _partitions(value) if "assignment" in name else decoded(value)
            for name, value in answer.items()
        }
    return answer


def _partitions(assignment: Any) -> Any:
    try:
        entries = decode_assignment(assignment).assigned_partitions
    except (TypeError, ValueError):
        return assignment
    return sorted((entry.topic, index) for entry in entries for index in entry.partitions)
