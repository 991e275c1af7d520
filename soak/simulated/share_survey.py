"""The settings of a run's share groups, and what is left of the groups in the end."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.interbroker.errors import ChannelError
from barnabas.broker.server.dead_letters.letters import (
    DELIVERIES_HEADER,
    GROUP_HEADER,
    OFFSET_HEADER,
    PARTITION_HEADER,
    TOPIC_HEADER,
)
from barnabas.kafka.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from soak.checker.model import READ_COMMITTED
from soak.simulated.client import GROUP, Place
from soak.simulated.fetcher import Found
from soak.simulated.plan import LOCK, Slot
from soak.simulated.stage import LETTERS, MADE_LETTERS, NS
from soak.simulated.survey import Survey

_GROUP_RESOURCE = 32
_PATIENCE = 90.0


async def configure(survey: Survey, groups: Mapping[str, Slot]) -> None:
    """Set the settings of share groups, which are those of a member's task."""
    for group, slot in groups.items():
        configs = slot.task.configs
        await _configure(survey, group, configs)
        survey.recorder.note(
            "share_settings",
            group=group,
            lock=round(LOCK * NS),
            limit=int(configs["share.delivery.count.limit"]),
            isolation=configs["share.isolation.level"],
            has_letters=bool(configs["errors.deadletterqueue.topic.name"]),
        )


async def _configure(survey: Survey, group: str, configs: Mapping[str, str]) -> None:
    changes = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in configs.items()]
    resource = AlterConfigsResource(resource_type=_GROUP_RESOURCE, resource_name=group, configs=changes)
    await survey.insist(
        lambda: IncrementalAlterConfigsRequest(resources=[resource]),
        lambda response: [answer.error_code for answer in response.responses],
    )


async def await_finished(survey: Survey, groups: Mapping[str, Slot]) -> None:
    """Wait until the groups have finished all records that they can see, or the time is over."""
    waiting = dict(groups)
    if not waiting:
        return
    ends = {
        isolation: await survey.last_offsets(isolation)
        for isolation in {slot.task.isolation: None for slot in waiting.values()}
    }
    deadline = survey.time() + _PATIENCE
    while waiting and survey.time() < deadline:
        for group, slot in list(waiting.items()):
            starts = await _start_offsets(survey, group, slot)
            if starts is not None and all(
                starts.get(place, -1) > end
                for place, end in ends[slot.task.isolation].items()
                if place[0] in slot.task.topics
            ):
                del waiting[group]
        await survey.pause_for(0.5)


async def record(survey: Survey, groups: Mapping[str, Slot]) -> None:
    """Write the start offsets of share groups, and their dead letters, into the history."""
    deadline = survey.time() + _PATIENCE
    for group, slot in groups.items():
        while (starts := await _start_offsets(survey, group, slot)) is None:
            if survey.time() > deadline:
                survey.stage.complain("no-offsets", f"the start offsets of {group} cannot be read")
                return
            await survey.back_off()
        offsets = [(topic, partition, offset) for (topic, partition), offset in starts.items()]
        survey.recorder.note("share_offsets", group=group, offsets=offsets)
    await _record_letters(survey)


async def _record_letters(survey: Survey) -> None:
    places = [place for place in await survey.places() if place[0] in (LETTERS, MADE_LETTERS)]
    for place, records in (await survey.contents(places, READ_COMMITTED)).items():
        letters = [(found.offset, *_letter(found)) for found in records]
        survey.recorder.note("letters", topic=place[0], partition=place[1], letters=letters)
    for place in survey.unread:
        survey.stage.complain("unreadable", f"{place} could not be read to its end")


def _letter(found: Found) -> tuple[str, str, int, int, int, str]:
    """Return what the checker's `DeadLetter` needs to know."""
    headers = dict(found.headers)
    return (
        headers[GROUP_HEADER].decode(),
        headers[TOPIC_HEADER].decode(),
        int(headers[PARTITION_HEADER]),
        int(headers[OFFSET_HEADER]),
        int(headers[DELIVERIES_HEADER]),
        found.id,
    )


async def _start_offsets(survey: Survey, group: str, slot: Slot) -> dict[Place, int] | None:
    """Return the start offset of each partition that has one; None if they cannot be read now."""
    places = await survey.places()
    topics = [
        DescribeShareGroupOffsetsRequestTopic(
            topic_name=topic, partitions=[number for name, number in places if name == topic]
        )
        for topic in slot.task.topics
    ]
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=topics)
    try:
        response = await survey.ask_coordinator(
            GROUP, group, DescribeShareGroupOffsetsRequest(groups=[asked])
        )
    except ChannelError:
        return None
    answer = response.groups[0]
    parts = [(topic.topic_name, part) for topic in answer.topics for part in topic.partitions]
    for code in [answer.error_code, *(part.error_code for _, part in parts)]:
        survey.note_code(code, "DescribeShareGroupOffsets")
        if code:
            return None
    return {(name, part.partition_index): part.start_offset for name, part in parts if part.start_offset >= 0}
