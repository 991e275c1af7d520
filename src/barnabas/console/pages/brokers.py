"""The pages of brokers: their partitions, log directories and settings, and current reassignments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.client.addresses import Address
from barnabas.client.brokers import Brokers
from barnabas.client.errors import ClientError, error_code, error_text
from barnabas.console.pages.query import Listing, Query, whole
from barnabas.console.pages.topic import settings_of
from barnabas.console.survey import Totals
from barnabas.console.view import ClusterView
from barnabas.kafka.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

GONE = "The broker is gone."
#: how many partitions of a broker are named
_NAMED = 50


class Member(NamedTuple):
    """A live broker, or one that is not live and holds replicas.

    Attributes:
        address: HOST:PORT; None for a broker that was never live while the console ran.
    """

    id: int
    address: str | None
    rack: str | None
    gone: bool


def members_of(brokers: Brokers, metadata: Any, holders: Iterable[int] | None = None) -> list[Member]:
    """Return the live brokers, and the brokers that hold replicas and are not live, sorted by id.

    Args:
        brokers: connections to the cluster. They know the last addresses of brokers that are not live.
        metadata: response to a Metadata request for all topics.
        holders: brokers that hold replicas; None to find them in `metadata`.
    """
    alive = {b.node_id: Member(b.node_id, f"{b.host}:{b.port}", b.rack, False) for b in metadata.brokers}
    if holders is None:
        holders = {n for topic in metadata.topics for p in topic.partitions for n in p.replica_nodes}
    gone = {n: Member(n, _address_text(brokers.address_of(n)), None, True) for n in holders if n not in alive}
    return [member for _, member in sorted((alive | gone).items())]


def _address_text(address: Address | None) -> str | None:
    return None if address is None else f"{address.host}:{address.port}"


def brokers(view: ClusterView, query: Query) -> dict[str, Any]:
    """Return the data of the brokers page.

    Query: ``search`` selects the topics of the partition matrix, ``page`` its page.
    """
    asked = Listing.asked(query, ("name",))
    metadata = view.metadata()
    controller = view.controller()
    found = sorted(
        (topic for topic in metadata.topics if asked.finds(topic.name)),
        key=lambda topic: (bool(topic.is_internal), str(topic.name)),  # users' topics first
    )
    matrix = (
        {
            "partition": f"{topic.name}-{p.partition_index}",
            "leader": p.leader_id if p.leader_id >= 0 else None,
            "replicas": p.replica_nodes,
            "in_sync": p.isr_nodes,
        }
        for topic in found
        for p in sorted(topic.partitions, key=lambda p: int(p.partition_index))
    )
    volumes, totals = view.volumes(), view.totals()
    moves, problem = _moves(view)
    return {
        "brokers": [
            {
                **member._asdict(),
                "controller": member.id == controller,
                "log_dirs": _directories(member.id, GONE if member.gone else volumes.get(member.id), totals),
            }
            for member in members_of(view.brokers, metadata)
        ],
        "matrix": [*asked.cut_lazily(matrix)],
        "sizes_age_s": totals.age_s,
        **asked.page_fields(sum(len(topic.partitions) for topic in found)),
        "moves": moves,
        "moves_problem": problem,
    }


def _directories(broker: int, answer: Any, totals: Totals) -> dict[str, Any]:
    """Return the data of a broker's log directories. Counts and bytes are None until they are known.

    Args:
        answer: the log directories in a DescribeLogDirs response, the text of an error, or None if there is
            neither.
        totals: number and bytes of the replicas in each log directory.
    """
    if answer is None or isinstance(answer, str):
        return {"directories": [], "problem": answer}
    return {
        "directories": [
            {
                "path": each.log_dir,
                "error": error_code(each.error_code).doc if each.error_code else None,
                "replicas": replicas.replicas if replicas else None,
                "bytes": replicas.bytes if replicas else None,
                "total_bytes": each.total_bytes if each.total_bytes >= 0 else None,
                "free_bytes": each.usable_bytes if each.usable_bytes >= 0 else None,
            }
            for each in answer
            for replicas in [totals.directories.get((broker, each.log_dir))]
        ],
        "problem": None,
    }


def _moves(view: ClusterView) -> tuple[list[dict[str, Any]], str | None]:
    try:
        response = view.brokers.ask(view.controller(), ListPartitionReassignmentsRequest(topics=None))
    except (ClientError, KafkaError) as error:
        return [], error_text(error)
    return [
        {
            "partition": f"{topic.name}-{p.partition_index}",
            "replicas": p.replicas,
            "adding": p.adding_replicas,
            "removing": p.removing_replicas,
        }
        for topic in response.topics
        for p in topic.partitions
    ], None


def broker(view: ClusterView, name: str, query: Query) -> dict[str, Any]:
    """Return the data of a broker's page: its partitions, and its settings with their sources.

    `name` is the broker's id. If the broker is not live, ``settings`` is empty, and ``settings_problem``
    says why.

    Raises:
        QueryError: `name` is not a whole number.
        KafkaError: no live broker has this id, and no partition has a replica on a broker with this id.
    """
    number = whole({"id": name}, "id", 0, maximum=2**31 - 1)
    metadata = view.metadata()
    member = next((each for each in members_of(view.brokers, metadata) if each.id == number), None)
    if member is None:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {number}")
    leaderships, replicas, out_of_sync = _partitions(metadata, number)
    return {
        **member._asdict(),
        "controller": number == view.controller(),
        "leads": len(leaderships),
        "replicas": len(replicas),
        "out_of_sync": {"count": len(out_of_sync), "names": out_of_sync[:_NAMED]},
        "led": {"count": len(leaderships), "names": leaderships[:_NAMED]},
        **(
            {"settings": [], "settings_problem": GONE}
            if member.gone
            else settings_of(view, "broker", str(number))
        ),
    }


def _partitions(metadata: Any, broker: int) -> tuple[list[str], list[str], list[str]]:
    """Return the names of a broker's partitions, such as ``orders-0``, as three lists.

    The first list has the partitions that the broker leads. The second list has all partitions with a replica
    on the broker. The third list has the partitions of the second list whose ISR lacks the broker. In each
    list, partitions of internal topics come last.
    """
    leaderships, replicas, out_of_sync = [], [], []
    for topic in sorted(metadata.topics, key=lambda topic: (bool(topic.is_internal), str(topic.name))):
        for p in sorted(topic.partitions, key=lambda p: int(p.partition_index)):
            if broker not in p.replica_nodes:
                continue
            name = f"{topic.name}-{p.partition_index}"
            replicas.append(name)
            if p.leader_id == broker:
                leaderships.append(name)
            if broker not in p.isr_nodes:
                out_of_sync.append(name)
    return leaderships, replicas, out_of_sync
