"""A broker coordinates the groups of the internal topic's partitions that it leads."""

from __future__ import annotations

import pytest

from barnabas.base.types import GROUP_METADATA_TOPIC
from barnabas.broker.coordinator import GroupCoordinator
from barnabas.broker.metadata.image import ClusterImage, ImageDelta, PartitionState, TopicImage

ME = 1


class Groups(GroupCoordinator):
    """Notes the calls that a coordinator gets."""

    def __init__(self):
        self.topic = GROUP_METADATA_TOPIC
        self.led = {}
        self.told = []

    def elect(self, partition, epoch):
        self.led[partition] = epoch

    def resign(self, partition):
        del self.led[partition]
        self.told.append(("resign", partition))

    def partitions(self):
        return list(self.led)

    def forget_topics(self, topics):
        self.told.append(("forget", topics))

    def forget_share_topics(self, topics):
        self.told.append(("forget in share groups", topics))


@pytest.fixture
def groups():
    return Groups()


def image(**topics):
    """Make an image of topics by name: (id, leader and epoch of each partition)."""
    made = {
        name: TopicImage(name, topic_id, tuple(PartitionState((1, 2), (1, 2), *state) for state in states))
        for name, (topic_id, *states) in topics.items()
    }
    return ClusterImage(topics=made, topic_names={topic.id: name for name, topic in made.items()})


def follow(groups, before, after):
    changed = frozenset(before.topics.keys() | after.topics.keys())
    delta = ImageDelta(before, after, topics=changed)
    groups.follow(ME, delta)
    return after


def offsets(*states, topic_id=b"o" * 16):
    return image(**{GROUP_METADATA_TOPIC: (topic_id, *states)})


def test_leader_takes_up_its_partitions_and_no_others(groups):
    follow(groups, ClusterImage(), offsets((ME, 4), (2, 0), (-1, 0), (ME, 0)))
    assert groups.led == {0: 4, 3: 0}


def test_leadership_that_moves_is_followed(groups):
    now = follow(groups, ClusterImage(), offsets((ME, 0), (2, 0), (ME, 0)))
    follow(groups, now, offsets((2, 1), (ME, 1), (ME, 5)))
    assert groups.told == [("resign", 0)]
    assert groups.led == {1: 1, 2: 5}


def test_topic_made_anew_is_read_anew(groups):
    now = follow(groups, ClusterImage(), offsets((ME, 0)))
    follow(groups, now, offsets((ME, 0), topic_id=b"p" * 16))
    assert groups.told[0] == ("resign", 0)
    assert groups.led == {0: 0}


def test_topic_that_is_gone_is_given_up(groups):
    now = follow(groups, ClusterImage(), offsets((ME, 0)))
    follow(groups, now, ClusterImage())
    assert groups.led == {}


def test_offsets_of_topics_deleted_or_made_anew_are_forgotten(groups):
    before = image(kept=(b"k" * 16, (ME, 0)), gone=(b"g" * 16, (ME, 0)), anew=(b"a" * 16, (ME, 0)))
    after = image(kept=(b"k" * 16, (ME, 1), (ME, 0)), anew=(b"b" * 16, (ME, 0)), fresh=(b"f" * 16, (ME, 0)))
    follow(groups, before, after)
    assert groups.told == [], "they are merely not there"
    deleted = dict.fromkeys((b"g" * 16, b"a" * 16), frozenset({ME}))
    follow(groups, before, after._replace(deleted_topics=deleted))
    assert groups.told == [
        ("forget", {"gone", "anew"}),
        ("forget in share groups", {b"g" * 16, b"a" * 16}),
    ]


def test_a_lost_session_ends_all_of_it(groups):
    follow(groups, ClusterImage(), offsets((ME, 4), (2, 0), (ME, 0)))
    groups.resign_all()
    assert groups.led == {}
