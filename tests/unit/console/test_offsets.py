"""Offsets of groups whose coordinator is dead."""

from __future__ import annotations

from types import SimpleNamespace

from barnabas.base.types import TopicPartition
from barnabas.client.brokers import BrokerResponses
from barnabas.client.consumer_groups import offsets_of_groups
from barnabas.client.errors import ClientError
from barnabas.console.survey import rest

PLACE = TopicPartition("orders", 0)


class Fleeting:
    """A cluster without a coordinator for "lost", with a dead one for "silent", and with one that answers."""

    def coordinators(self, groups):
        return {group: {"silent": 1, "told": 2}[group] for group in groups if group != "lost"}

    def ask_each(self, requests, **_):
        failures = {1: ClientError("it is gone")} if 1 in requests else {}
        return BrokerResponses({2: self._answer()} if 2 in requests else {}, failures)

    def _answer(self):
        partition = SimpleNamespace(partition_index=0, committed_offset=7, error_code=0)
        topic = SimpleNamespace(name="orders", partitions=[partition])
        return SimpleNamespace(groups=[SimpleNamespace(group_id="told", topics=[topic], error_code=0)])


def test_a_group_whose_coordinator_does_not_answer_keeps_its_offsets():
    before = {"lost": {PLACE: 1}, "silent": {PLACE: 2}, "told": {PLACE: 3}}
    found = offsets_of_groups(Fleeting(), ["lost", "silent", "told"], before)
    assert found == {"lost": {PLACE: 1}, "silent": {PLACE: 2}, "told": {PLACE: 7}}
    assert offsets_of_groups(Fleeting(), ["lost", "told"]) == {"lost": {}, "told": {PLACE: 7}}


def test_what_takes_long_is_asked_for_less_often_but_not_never():
    assert rest(1.0, took_s=0.01, max_s=30.0) == 1.0
    assert rest(1.0, took_s=2.0, max_s=30.0) == 18.0
    assert rest(1.0, took_s=100.0, max_s=30.0) == 30.0
