"""A member of a share group, as the group coordinator sees it: heartbeats and an assignment (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from barnabas.base.environment.randomness import new_uuid
from barnabas.base.errors import ErrorCode
from barnabas.broker.interbroker.errors import ChannelError
from barnabas.kafka.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    TopicPartitions,
)
from soak.simulated.client import GROUP, Client, Place

_HEARTBEAT_SECONDS = 1.0


class ShareMember:
    """Sends heartbeats. The member may fetch from the partitions in `assigned`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.member_id = str(new_uuid(client.random))
        self.assigned: dict[Place, None] = {}
        self._epoch = 0
        self._next_beat = 0.0
        #: whether the next heartbeat has all fields, because the coordinator may have missed some
        self._is_full = True

    async def step(self) -> None:
        """Join, or send the next heartbeat if it is due."""
        client = self._client
        if client.time() < self._next_beat:
            return
        self._next_beat = client.time() + _HEARTBEAT_SECONDS
        request = ShareGroupHeartbeatRequest(
            group_id=client.task.group, member_id=self.member_id, member_epoch=self._epoch
        )
        if self._is_full:
            request.subscribed_topic_names = list(client.task.topics)
        try:
            response = await client.ask_coordinator(GROUP, client.task.group, request, purpose="group")
        except ChannelError:
            self._is_full = True
            return
        client.note_code(response.error_code, "ShareGroupHeartbeat")
        if response.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self._epoch, self._is_full, self._next_beat = 0, True, 0.0
            self.assigned.clear()
        elif response.error_code:
            self._is_full = True
            await client.back_off()
        else:
            self._epoch, self._is_full = response.member_epoch, False
            interval = min(response.heartbeat_interval_ms / 1000, _HEARTBEAT_SECONDS)
            self._next_beat = client.time() + interval
            if response.assignment is not None:
                await self._take(response.assignment.topic_partitions)

    async def leave(self) -> None:
        """Leave the group. If there is no answer, the member's session times out."""
        request = ShareGroupHeartbeatRequest(
            group_id=self._client.task.group, member_id=self.member_id, member_epoch=-1
        )
        with suppress(ChannelError):
            await self._client.ask_coordinator(GROUP, self._client.task.group, request, purpose="group")

    async def _take(self, assigned: Iterable[TopicPartitions]) -> None:
        client = self._client
        target: dict[Place, None] = {}
        for topic in assigned:
            if topic.topic_id not in client.topic_names:
                await client.learn()
            name = client.topic_names.get(topic.topic_id)
            if name is None:
                self._is_full = True  # the coordinator then sends the assignment again
            else:
                target.update({(name, number): None for number in topic.partitions})
        self.assigned = target
