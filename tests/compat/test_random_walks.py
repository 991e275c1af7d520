"""Barnabas and Apache Kafka give the same answers in random conversations.

The seed determines all requests of a walk. With BARNABAS_WALKS=100, there are 100 walks of each kind; after a
difference, the message has the last requests. The walks leave out most of what each broker may do in its own
way. Of a difference with another seed, find out whether it matters to a client.
"""

from __future__ import annotations

import os

import pytest
from tests.compat.walks.classic import ClassicWalk
from tests.compat.walks.configs import ConfigWalk
from tests.compat.walks.data import DataWalk
from tests.compat.walks.groups import GroupWalk
from tests.compat.walks.pair import Pair
from tests.compat.walks.shares import ShareWalk
from tests.compat.walks.topics import TopicWalk
from tests.compat.walks.transactions import TransactionWalk

STEPS = 60


@pytest.mark.parametrize("seed", range(int(os.environ.get("BARNABAS_WALKS", "2"))))
@pytest.mark.parametrize(
    "walk", [ClassicWalk, ConfigWalk, DataWalk, GroupWalk, ShareWalk, TopicWalk, TransactionWalk]
)
def test_random_walk(broker, kafka, walk, seed):
    pair = Pair((broker.bootstrap, kafka.bootstrap), seed, walk.__name__)
    try:
        walk(pair).run(STEPS)
    finally:
        pair.close()
