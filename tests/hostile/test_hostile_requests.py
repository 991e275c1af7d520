"""The most expensive request of up to a megabyte in each API delays no other client, and keeps no memory.

The test sends each request to an empty broker, and to one with topics, groups and transactions. A sample runs
with the other tests: one shape of each API's latest version. ``make hostile`` runs every shape of every
version (half an hour). With ``-rA``, pytest prints the costs.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.hostile.generated import CHANGES, Shape, World, frame, shapes
from tests.hostile.measured import Cost, MeasuredBroker, cost
from tests.hostile.world import WITH_AUTHORIZER, Wire, admit, populate

from barnabas.broker.server.handlers import load
from barnabas.kafka.protocol.framing import RequestHeader, encode_request
from barnabas.kafka.protocol.messages.fetch import FetchRequest
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.kafka.protocol.wire import MAX_ELEMENTS

APIS = list(load().values())

#: how long a turn of the event loop may take, in seconds of CPU time
LONGEST_TURN = 0.1
#: what a request may make the broker hold, while it is served and afterwards
MAX_MB = 64

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(
    scope="module",
    params=[
        "before anything exists",
        "with topics, groups and transactions",
        pytest.param("with an authorizer, by a user with few rights", marks=pytest.mark.hostile),
    ],
)
def target(request, tmp_path_factory):
    """Start a broker with the topics, groups and users that the requests name."""
    settings = WITH_AUTHORIZER if "authorizer" in request.param else {}
    with MeasuredBroker(tmp_path_factory.mktemp("hostile"), **settings) as broker:
        world = populate(broker) if "with" in request.param else World()
        if settings:
            admit(broker, "alice")
        yield broker, world


CHANCE = random.Random(9)


def cases():
    for api in APIS:
        latest = api.versions[1]
        sample = CHANCE.choice(list(shapes(api.request, latest))).name
        for version in range(api.versions[0], latest + 1):
            for shape in shapes(api.request, version):
                in_sample = version == latest and shape.name == sample
                yield pytest.param(
                    api,
                    version,
                    shape,
                    id=f"{api.name}-v{version}-{shape.name}",
                    marks=() if in_sample else pytest.mark.hostile,
                )


def check(what: str, spent: Cost) -> None:
    print(
        f"{what}: turn {spent.turn.seconds * 1000:.0f} ms "
        f"({spent.turn.collecting * 1000:.0f} ms of it collecting), peak {spent.peak_mb:.0f} MB, "
        f"held {spent.held_mb:.0f} MB, answer {spent.answered} bytes"
    )
    assert spent.turn.seconds <= LONGEST_TURN, spent
    assert spent.peak_mb <= MAX_MB, spent
    assert spent.held_mb <= MAX_MB, spent


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make no cases that are left out: there are thousands, and each takes time to collect."""
    if "shape" in metafunc.fixturenames:
        only_sample = "not hostile" in metafunc.config.getoption("markexpr")
        chosen = [case for case in cases() if not (only_sample and case.marks)]
        metafunc.parametrize("api, version, shape", chosen)


def test_no_request_of_a_megabyte_holds_up_the_broker(target, api, version, shape):
    broker, world = target
    request = frame(api.request, version, shape, world)
    check(f"{api.name} v{version}, {shape.name}, {len(request)} bytes", cost(broker, request))


@pytest.mark.hostile
@pytest.mark.parametrize("name", CHANGES)
def test_no_request_that_changes_much_holds_up_the_broker(name, tmp_path):
    """This uses a separate broker, because the created objects stay and use memory."""
    with MeasuredBroker(tmp_path) as broker:
        world = populate(broker)
        for request in CHANGES[name]:
            spent = cost(broker, request(world))
            print(f"{name}: {spent}")
            assert spent.turn.seconds <= LONGEST_TURN, spent


@pytest.mark.parametrize("setting", ["consumer.session.timeout.ms", "n" * 200])
def test_a_request_that_sets_too_much_is_refused_before_any_of_it_is_looked_at(setting, tmp_path):
    """25,000 settings of groups in 6.5 to 10.8 MB took five seconds of CPU time and up to 195 MB."""
    config = AlterableConfig(name=setting, config_operation=0, value="50000")
    resources = [
        AlterConfigsResource(resource_type=32, resource_name=f"{number:0220}", configs=[config])
        for number in range(MAX_ELEMENTS // 2)
    ]
    request = IncrementalAlterConfigsRequest(resources=resources)
    header = RequestHeader(request.api_key, 1, 1, "hostile")
    with MeasuredBroker(tmp_path) as broker:
        worked = broker.worked
        check(
            "settings of 25,000 groups", cost(broker, b"".join(map(bytes, encode_request(header, request))))
        )
        assert broker.worked - worked < 1
        wire = Wire(broker)
        errors = {(each.error_code, each.error_message) for each in wire(request).responses}
        wire.close()
    assert errors == {(44, "25000 resources in one request, 10000 are allowed: send several requests")}


def test_fetches_that_wait_hold_little_however_many_and_wide(tmp_path):
    with MeasuredBroker(tmp_path) as broker:
        world = populate(broker)
        waiting = {"fetch_offset": 50, "max_wait_ms": 30_000, "min_bytes": 1}
        shape = Shape("", ("topics", "partitions"), likely=waiting)
        fetch = frame(FetchRequest, 17, shape, world)
        check(f"64 fetches of {len(fetch)} bytes", cost(broker, fetch * 64))
        narrow = frame(FetchRequest, 17, replace(shape, max_elements=900), world)
        check(f"64 fetches of {len(narrow)} bytes", cost(broker, narrow * 64))
