"""One member of a classic group."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from barnabas.kafka.protocol.messages.join_group import JoinGroupResponse
from barnabas.kafka.protocol.messages.sync_group import SyncGroupResponse
from barnabas.kafka.protocol.records.group_metadata import MemberMetadata

T = TypeVar("T")


class Protocol(NamedTuple):
    """An assignment strategy that a member supports, and its metadata for the leader."""

    name: str
    metadata: bytes


class ClassicMember:
    """A member of a classic group. `join` and `sync` are the futures of its delayed requests."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Sequence[Protocol],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        #: whether the member has not completed a join phase yet: it can time out while its JoinGroup waits
        self.is_new = False
        self.join: asyncio.Future[JoinGroupResponse] | None = None
        self.sync: asyncio.Future[SyncGroupResponse] | None = None

    @classmethod
    def from_record(cls, record: MemberMetadata, protocol: str | None) -> ClassicMember:
        """Return a member from its record.

        The record has the metadata of only one protocol: `protocol`, the one that the group has chosen. None
        means that the group has chosen none.
        """
        # Records of version 0 had one timeout for both.
        rebalance = record.rebalance_timeout if record.rebalance_timeout >= 0 else record.session_timeout
        return cls(
            record.member_id,
            record.group_instance_id,
            record.client_id,
            record.client_host,
            rebalance,
            record.session_timeout,
            [Protocol(protocol or "", record.subscription)],
            record.assignment,
        )

    def to_record(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for `protocol`; empty if the member does not support the protocol."""
        return next((p.metadata for p in self.protocols if p.name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """Return the protocol in `candidates` that the member prefers.

        The member must support at least one of the candidates.
        """
        return next(p.name for p in self.protocols if p.name in candidates)

    @property
    def may_expire(self) -> bool:
        """Whether the member's session can time out.

        It cannot while a request of the member is delayed. A new member, which has not completed a join phase
        yet, is an exception: its session can time out while its JoinGroup is delayed.
        """
        return self.is_new or (self.join is None and self.sync is None)

    def answer_join(self, response: JoinGroupResponse) -> bool:
        """Answer the delayed JoinGroup.

        Return False if there is none. Only `Members.answer_join` may call this.
        """
        parked, self.join = self.join, None
        return _answer(parked, response)

    def remove_sync(self) -> asyncio.Future[SyncGroupResponse] | None:
        """Remove and return the future of the delayed SyncGroup; None if there is none.

        The caller must set the result of the future.
        """
        parked, self.sync = self.sync, None
        return parked

    def answer_sync(self, response: SyncGroupResponse) -> bool:
        """Answer the delayed SyncGroup. Return False if there is none."""
        return _answer(self.remove_sync(), response)


def _answer(parked: asyncio.Future[Any] | None, response: object) -> bool:
    if parked is None:
        return False
    if not parked.done():  # done: the client has disconnected, and the server cancelled the answer
        parked.set_result(response)
    return True
