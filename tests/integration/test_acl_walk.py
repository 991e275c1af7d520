"""Each API serves only users with the permissions that Apache Kafka demands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.acl_broker import AclBroker
from tests.integration.acl_walk import NEEDS, OPEN, prepare, walk
from tests.integration.conftest import Wire

from barnabas.broker.server.handlers import load


def test_the_table_of_the_walk_has_every_api():
    assert {api.name for api in load().values()} == NEEDS.keys() | OPEN


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AclBroker]:
    with AclBroker(tmp_path_factory.mktemp("walk")) as broker:
        broker.add("alice")
        yield broker


@pytest.fixture(scope="module")
def admin(broker: AclBroker) -> Iterator[Wire]:
    admin = Wire(broker.open_address)
    prepare(admin)
    yield admin
    admin.close()


@pytest.fixture
def alice(broker: AclBroker, admin: Wire) -> Iterator[Wire]:
    alice = broker.connect("alice")
    yield alice
    alice.close()


@pytest.mark.parametrize("name", [api.name for api in load().values() if api.name in NEEDS])
def test_an_api_is_served_to_who_is_allowed_what_it_needs(name, admin, alice):
    otherwise = walk(name, admin, alice, "alice")
    assert otherwise == [], f"with these grants {name} answers otherwise than its row in acl_walk.NEEDS says"
