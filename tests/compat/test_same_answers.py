"""Barnabas and Apache Kafka give the same answers to the same requests, in every version of every API."""

from __future__ import annotations

import inspect

import pytest
from bench.artifacts import KAFKA_VERSION
from tests.compat.scenarios import consumer_groups, data, groups, share_groups, topics, transactions
from tests.compat.wire import Scenario, converse, differences, with_epochs_of_kafka_4_4

# A scenario is a generator function of one argument, `wire`.
SCENARIOS = [
    scenario
    for module in (data, topics, groups, consumer_groups, share_groups, transactions)
    for name, scenario in vars(module).items()
    if inspect.isgeneratorfunction(scenario) and list(inspect.signature(scenario).parameters) == ["wire"]
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_same_answers(broker, kafka, scenario: Scenario):
    ours, theirs = converse(broker.bootstrap, scenario), converse(kafka.bootstrap, scenario)
    if KAFKA_VERSION >= "4.4" and scenario.__module__ == share_groups.__name__:
        ours = [(request, with_epochs_of_kafka_4_4(answer)) for request, answer in ours]
    different = [
        f"{request[:300]}\n    " + "\n    ".join(found)
        for (request, mine), (_, expected) in zip(ours, theirs, strict=False)
        if (found := list(differences(mine, expected)))
    ]
    assert not different, f"{len(different)} of {len(theirs)} answers differ\n" + "\n".join(different)
    assert len(ours) == len(theirs)
