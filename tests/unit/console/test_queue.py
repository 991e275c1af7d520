"""The dead letters of a share group, on a page of the console."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.unit.console.clusters import PARTITIONS, Cluster

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.client.errors import AuthenticationError
from barnabas.console.pages.queue import queue

LETTERS = "topic-00000"


@pytest.fixture
def letters_of(view_of, monkeypatch):
    """Return the part about dead letters of a queue's page. The other parts are empty."""
    setting = SimpleNamespace(name="errors.deadletterqueue.topic.name", value=LETTERS)

    def read(cluster, configs=lambda kind, name: [setting]):
        view = view_of(cluster)
        monkeypatch.setattr(view.admin, "share_offsets", lambda group: {})
        monkeypatch.setattr(view.admin, "share_records", lambda group, partitions: {})
        monkeypatch.setattr(view.admin, "configs", configs)
        told = queue(view, "g", [])
        assert told["partitions"] == [] and told["is_told"]
        return told["dead_letters"]

    return read


def test_dead_letters_of_all_partitions_are_counted(letters_of):
    assert letters_of(Cluster(topics=1)) == {"topic": LETTERS, "records": 5 * PARTITIONS, "problem": None}


@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("_ListOffsets", AuthenticationError("127.0.0.1:1: wrong password")),
        ("_Metadata", KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no permission")),
    ],
)
def test_the_rest_of_the_page_is_there_when_the_dead_letters_cannot_be_counted(
    letters_of, monkeypatch, method, error
):
    def fail(request):
        raise error

    cluster = Cluster(topics=1)
    monkeypatch.setattr(cluster, method, fail)
    told = letters_of(cluster)
    assert (told["topic"], told["records"]) == (LETTERS, None)
    assert told["problem"]


def test_a_group_whose_settings_cannot_be_read_does_not_seem_to_have_no_dead_letters(letters_of):
    def fail(kind, name):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no permission")

    assert letters_of(Cluster(topics=1), fail) == {
        "topic": None,
        "records": None,
        "problem": "the group's settings cannot be read: no permission",
    }


def test_partitions_without_a_leader_are_named_beside_the_count_of_the_others(letters_of):
    cluster = Cluster(topics=1)
    for partition in cluster.metadata().topics[0].partitions[:4]:
        partition.leader_id = -1
    assert letters_of(cluster) == {
        "topic": LETTERS,
        "records": 5 * (PARTITIONS - 4),
        "problem": f"4 of {PARTITIONS} partitions do not answer",
    }


def test_a_dead_letter_topic_that_does_not_exist_is_named(letters_of):
    assert letters_of(Cluster(topics=0))["problem"] == "there is no such topic"
