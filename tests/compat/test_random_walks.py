"""Barnabas and Apache Kafka give the same answers in random conversations.

The seed determines all requests of a walk. With BARNABAS_WALKS=100, there are 100 walks of each kind; after a
difference, the message has the last requests. The walks leave out most of what each broker may do in its own
way. Of a difference with another seed, find out whether it matters to a client.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compat.test_acls import SecureKafka
from tests.compat.walks.classic import ClassicWalk
from tests.compat.walks.configs import ConfigWalk
from tests.compat.walks.data import DataWalk
from tests.compat.walks.groups import GroupWalk
from tests.compat.walks.pair import Pair
from tests.compat.walks.permissions import PermissionWalk
from tests.compat.walks.recreated_shares import ShareRecreationWalk
from tests.compat.walks.recreation import RecreationWalk
from tests.compat.walks.security import SecurityWalk
from tests.compat.walks.shares import ShareWalk
from tests.compat.walks.tokens import TokenWalk
from tests.compat.walks.topics import TopicWalk
from tests.compat.walks.transactions import TransactionWalk
from tests.integration.acl_broker import AclBroker

STEPS = 60


SEEDS = range(int(os.environ.get("BARNABAS_WALKS", "2")))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "walk",
    [
        ClassicWalk,
        ConfigWalk,
        DataWalk,
        GroupWalk,
        RecreationWalk,
        ShareRecreationWalk,
        ShareWalk,
        TopicWalk,
        TransactionWalk,
    ],
)
def test_random_walk(broker, kafka, walk, seed):
    pair = Pair((broker.bootstrap, kafka.bootstrap), seed, walk.__name__)
    try:
        walk(pair).run(STEPS)
    finally:
        pair.close()


@pytest.fixture(scope="module")
def secured(classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Start Barnabas and Apache Kafka with ACLs, for the logins of an administrator and of Alice."""
    settings = {
        "super.users": "User:ANONYMOUS;User:admin",
        "delegation.token.secret.key": "a secret of the cluster",
    }
    with AclBroker(tmp_path_factory.mktemp("barnabas"), **settings) as broker:
        broker.add("admin", "alice")
        kafka = SecureKafka(Path(tmp_path_factory.mktemp("kafka")))
        kafka.start()
        try:
            yield broker.address, kafka.bootstrap
        finally:
            kafka.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_random_walk_of_security(secured, seed):
    admin = Pair(secured, seed, "SecurityWalk", "admin")
    try:
        SecurityWalk(admin).run(STEPS)
    finally:
        admin.close()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("walk", [PermissionWalk, TokenWalk])
def test_random_walk_of_two_users(secured, walk, seed):
    admin, alice = (Pair(secured, seed, walk.__name__, user) for user in ("admin", "alice"))
    try:
        walk(admin, alice).run(STEPS)
    finally:
        admin.close()
        alice.close()
