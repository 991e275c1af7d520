"""Members of groups that live briefly, use either protocol, and delete their group or its offsets."""

from __future__ import annotations

from dataclasses import replace

from barnabas.base.errors import ErrorCode
from barnabas.broker.interbroker.errors import ChannelError
from barnabas.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.kafka.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from soak.roles.common import Task
from soak.simulated.client import GROUP, Client, is_retriable, name_of
from soak.simulated.members import commit_offsets
from soak.simulated.readers import Consume
from soak.simulated.stage import Stage
from soak.simulated.workers import Work

#: possible errors of a deletion, apart from those that another attempt can avoid
_REFUSALS = frozenset(
    {ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
)


class Brief(Consume):
    """A member that soon leaves its group. While there are faults, another life follows.

    Each life chooses the classic or the consumer protocol. So a group with several such members changes from
    one protocol to the other and back (KIP-848).
    """

    #: seconds of a life
    life = (1.5, 5.0)

    def __init__(self, stage: Stage, task: Task, life: int) -> None:
        protocol = stage.random(f"{task.name}.{life} protocol").choice(["classic", "consumer"])
        super().__init__(stage, replace(task, protocol=protocol), life)
        self._until = self.time() + self.random.uniform(*self.life)

    @property
    def has_ended(self) -> bool:
        return super().has_ended or (self.stage.has_faults and self.time() > self._until)


class Deleter(Brief):
    """A brief member that deletes its group after it has left, or offsets of the group.

    The next life creates the group again, perhaps for the other protocol. The broker must reject a commit of
    a member of the deleted group.
    """

    life = (0.7, 2.5)

    async def run(self) -> None:
        await super().run()
        if self.stopping or not self.stage.has_faults:
            return
        await self.pause_for(self.random.uniform(0.0, 2.0))
        if self.random.random() < 0.3:
            await self._delete_offsets()
        elif await delete_group(self):
            await self._commit_late()

    async def _delete_offsets(self) -> None:
        topic = self.random.choice(list(self.task.topics))
        numbers = range(self.task.topics[topic])
        parts = [OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
        request = OffsetDeleteRequest(
            group_id=self.task.group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=parts)]
        )
        self.recorder.note("forget", topics={topic: self.task.topics[topic]})
        try:
            response = await self.ask_coordinator(GROUP, self.task.group, request)
        except ChannelError:
            return
        codes = [part.error_code for each in response.topics for part in each.partitions]
        _judge(self, [response.error_code, *codes])

    async def _commit_late(self) -> None:
        """Commit as a member of the deleted group."""
        _, epoch = self.member.identity
        if epoch > 0:
            offsets = {(topic, 0): 1 for topic in self.task.topics}
            if await commit_offsets(self, self.member, offsets) == 0:
                self.stage.complain("late-commit", f"{self.name} of the deleted {self.task.group} commits")


class BriefWork(Work):
    """A brief member of a share group. After it has left, it deletes the group."""

    def __init__(self, stage: Stage, task: Task, life: int) -> None:
        super().__init__(stage, task, life)
        self._until = self.time() + self.random.uniform(*Deleter.life)

    @property
    def has_ended(self) -> bool:
        return super().has_ended or (self.stage.has_faults and self.time() > self._until)

    async def run(self) -> None:
        await super().run()
        if not self.stopping and self.stage.has_faults:
            await self.pause_for(self.random.uniform(0.0, 2.0))
            await delete_group(self)


async def delete_group(client: Client) -> bool:
    """Delete the group of a client. Return whether the broker has confirmed it."""
    client.recorder.note("forget", topics=client.task.topics)
    try:
        response = await client.ask_coordinator(
            GROUP, client.task.group, DeleteGroupsRequest(groups_names=[client.task.group])
        )
    except ChannelError:
        return False
    return _judge(client, [result.error_code for result in response.results])


def _judge(client: Client, codes: list[int]) -> bool:
    """Note the outcome of a deletion. Return whether it succeeded."""
    worst = next((code for code in codes if code), 0)
    for code in codes:
        client.note_code(code, "DeleteGroups")
        if code and not is_retriable(code) and code not in _REFUSALS:
            client.stage.complain("delete-refused", f"{client.name} was answered {name_of(code)}")
    if not worst or worst in _REFUSALS:
        client.recorder.note("forgot", ok=not worst)
    return not worst
