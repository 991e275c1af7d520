"""A client's knowledge of the cluster: the leaders of partitions, the coordinators and the controller."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TypeAlias

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.metadata import MetadataResponse

Place: TypeAlias = tuple[str, int]
#: a kind of coordinator and the key it coordinates
Coordinated: TypeAlias = tuple[int, str]

_ELSEWHERE = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Routes:
    """Addresses that a client learns from answers. It forgets one when an answer shows that it is out of
    date.

    Args:
        broker_ids: the brokers to ask at first, and when the address is unknown.
    """

    def __init__(self, broker_ids: tuple[int, ...], random: Random) -> None:
        self._broker_ids = broker_ids
        self._random = random
        #: with the epoch in which it leads: an older one is never believed again (KIP-320)
        self._leaders: dict[Place, tuple[int, int]] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._unsure: dict[Place, None] = {}
        self._coordinators: dict[Coordinated, int] = {}
        self._controller: int | None = None
        #: the one broker that it knows
        self._only: int | None = None

    def confine(self, broker_id: int) -> None:
        """Use only this broker for requests that any broker can answer, until `release`."""
        self._only = broker_id

    def release(self) -> None:
        """Use all brokers again."""
        self._only = None

    def anyone(self) -> int:
        """Return a random broker, for requests that any broker can answer."""
        return self._random.choice(self._broker_ids) if self._only is None else self._only

    def learn(self, response: MetadataResponse) -> None:
        """Store the leaders and the controller of a Metadata response."""
        self._controller = response.controller_id if response.controller_id >= 0 else None
        for topic in response.topics:
            if topic.error_code or topic.name is None:
                continue
            if self._topic_ids.get(topic.name) != topic.topic_id:  # another one: its epochs begin anew
                self._topic_ids[topic.name] = topic.topic_id
                for place in [place for place in self._leaders if place[0] == topic.name]:
                    del self._leaders[place]
            for part in topic.partitions:
                place = topic.name, part.partition_index
                known = self._leaders.get(place)
                if known is None or part.leader_epoch >= known[1] or part.leader_epoch < 0:
                    self._leaders[place] = part.leader_id, part.leader_epoch
                    self._unsure.pop(place, None)

    def leader_of(self, place: Place) -> int | None:
        """Return the leader of a partition; None if a Metadata request is necessary."""
        if place in self._unsure or place not in self._leaders:
            return None
        leader = self._leaders[place][0]
        return leader if leader >= 0 else None

    def epoch_of(self, place: Place) -> int:
        """Return the leader epoch of the known leader; -1 if it is unknown."""
        known = self._leaders.get(place)
        return -1 if known is None else known[1]

    def doubt_leader(self, place: Place) -> None:
        """Forget the leader of a partition, so that the client asks for it before the next request."""
        self._unsure[place] = None

    def coordinator_of(self, key: Coordinated) -> int | None:
        return self._coordinators.get(key)

    def learn_coordinator(self, key: Coordinated, broker_id: int) -> None:
        self._coordinators[key] = broker_id

    def doubt_coordinator(self, key: Coordinated) -> None:
        self._coordinators.pop(key, None)

    def judge_coordinator(self, key: Coordinated, response: object) -> None:
        """Forget the coordinator if its answer has an error that names another one or none."""
        if any(code in _ELSEWHERE for code in error_codes(response)):
            self.doubt_coordinator(key)

    @property
    def controller(self) -> int | None:
        return self._controller

    def doubt_controller(self) -> None:
        self._controller = None


def error_codes(message: object) -> Iterator[int]:
    """Yield every error code in an answer."""
    if isinstance(message, list | tuple):
        for each in message:
            yield from error_codes(each)
        return
    for name in getattr(message, "__slots__", ()):
        value = getattr(message, name)
        if name.endswith("error_code"):
            yield value
        elif isinstance(value, list | tuple):
            yield from error_codes(value)
