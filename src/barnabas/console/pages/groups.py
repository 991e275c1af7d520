"""The page of all groups with their lag, and the page of one group with its members and offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.client.admin_types import GroupDescription
from barnabas.client.consumer_groups import offsets_of_groups
from barnabas.client.errors import ClientError, error_text
from barnabas.client.lag import lag_of
from barnabas.client.leaders import live_leaders
from barnabas.client.offset_calls import EARLIEST, LATEST, offsets_at
from barnabas.client.share_groups import ShareOffset
from barnabas.console.pages.query import Listing, Query
from barnabas.console.pages.queue import queue
from barnabas.console.view import ClusterView

#: the most partitions whose lag is shown in seconds; each of them takes a read
_READ = 50

_DESCRIBED = ("state", "type", "assignor", "coordinator", "epoch")


def groups(view: ClusterView, query: Query) -> dict[str, Any]:
    """Return the data of the groups page. Query: search, sort (name, lag, state), order (up, down), page."""
    asked = Listing.asked(query, ("name", "lag", "state"))
    listed, problem = view.groups()
    committed = view.committed()
    ends = view.committed_ends()
    rows = [
        {
            "name": group.group_id,
            "state": group.group_state,
            "type": group.group_type or "classic",
            "protocol": group.protocol_type,
            **_read_by(ends, committed.get(group.group_id)),
        }
        for group in listed
        if asked.finds(group.group_id)
    ]
    rows.sort(key=lambda row: row["name"])
    rows.sort(key=lambda row: row[asked.sort] if row[asked.sort] is not None else -1, reverse=asked.is_down)
    shown = asked.cut(rows)
    # Of too many groups only those on the page are asked for. Share groups commit no offsets.
    for row in shown:
        if row["type"] == "share":
            row.update(_shared_by(view.share_offsets(row["name"])))
    late = [row["name"] for row in shown if row["name"] not in committed and row["type"] != "share"]
    if late:
        found = offsets_of_groups(view.brokers, late)
        ends = view.ends_of({p for offsets in found.values() for p in offsets})
        for row in shown:
            if row["name"] in found:
                row.update(_read_by(ends, found[row["name"]]))
    return {
        "groups": shown,
        "looked_at": len(committed),
        **asked.page_fields(len(rows)),
        "problem": problem,
    }


def _read_by(
    ends: Mapping[TopicPartition, int], offsets: Mapping[TopicPartition, int] | None
) -> dict[str, Any]:
    """Return ``topics``, the names of the topics with committed `offsets`, and ``lag``, the sum of lags.

    If the group's offsets are not known, the names are empty and the lag is None.
    """
    if offsets is None:
        return {"topics": [], "lag": None}
    return {"topics": sorted({p.topic for p in offsets}), "lag": sum(lag_of(ends, offsets).values())}


def _shared_by(offsets: Mapping[TopicPartition, ShareOffset]) -> dict[str, Any]:
    """Return ``topics``, the names of a share group's topics, and ``lag``, the sum of its known lags.

    The lag is None if no partition's lag is known.
    """
    lags = [offset.lag for offset in offsets.values() if offset.lag is not None]
    return {"topics": sorted({p.topic for p in offsets}), "lag": sum(lags) if lags else None}


def group(view: ClusterView, name: str, query: Query) -> dict[str, Any]:
    """Return the data of a group's page: members, and each partition's lag in records and in seconds.

    For a share group, the data of `queue` replaces the lag of the partitions.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND, there is no such group; or a broker rejects a request.
        ClientError: no broker answers.
    """
    committed = offsets_of_groups(view.brokers, [name])[name]
    problem, described = None, None
    try:
        described = view.admin.describe_group(name)
    except (ClientError, KafkaError) as error:
        if not committed:
            raise
        problem = error_text(error)
    if not committed and problem is None and described is not None and described.state == "Dead":
        listed, _ = view.groups()  # share groups and others that are described in another way
        if not any(each.group_id == name for each in listed):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name}")
    about = {
        "name": name,
        **{each: getattr(described, each, None) for each in _DESCRIBED},
        "problem": problem,
    }
    members = _members(described)
    if described is not None and described.type == "share":
        return {**about, "members": members, **queue(view, name, members)}
    owners: dict[TopicPartition, str] = {}
    for member in described.members if described is not None else ():
        owners |= dict.fromkeys(member.assignment, member.member_id)
    wanted = {p.topic for p in {*committed, *owners}}
    metadata = view.metadata(sorted(wanted)) if wanted else None
    leaders = (
        {p: leader for p, leader in live_leaders(metadata.topics).items() if p in committed or p in owners}
        if metadata
        else {}
    )
    ends = offsets_at(view.brokers, leaders, LATEST)
    starts = offsets_at(view.brokers, leaders, EARLIEST)
    behind = lag_of(ends, committed)
    worst = sorted((p for p in behind if behind[p]), key=lambda p: -behind[p])[:_READ]
    seconds = view.ages.seconds_behind(
        view.brokers, metadata, {p: committed[p] for p in worst}, view.clock.now_ms() / 1000
    )
    return {
        **about,
        "lag": sum(behind.values()),
        "members": members,
        "partitions": [
            {
                "topic": p.topic,
                "partition": p.partition,
                "committed": committed.get(p),
                "start": starts.get(p),
                "end": ends.get(p),
                "lag": behind.get(p),
                "seconds": 0.0 if behind.get(p) == 0 else seconds.get(p),
                "member": owners.get(p),
                "out_of_range": p in committed
                and p in ends
                and not starts.get(p, 0) <= committed[p] <= ends[p],
            }
            for p in sorted({*committed, *owners})
        ],
    }


def _members(described: GroupDescription | None) -> list[dict[str, Any]]:
    return [
        {
            "id": member.member_id,
            "instance": member.instance_id,
            "client": member.client_id,
            "host": member.host,
            "epoch": member.epoch,
            "partitions": [f"{topic}-{number}" for topic, number in member.assignment],
        }
        for member in (described.members if described is not None else ())
    ]
