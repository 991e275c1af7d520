"""FindCoordinator: for one or several groups, and for keys without a coordinator."""

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.testing import BarnabasBroker


@pytest.mark.parametrize("version", range(4))
def test_coordinator_of_a_group(wire, barnabas_broker, group_id, version):
    response = wire(FindCoordinatorRequest(key=group_id), version)
    assert response.error_code == 0
    assert f"{response.host}:{response.port}" == barnabas_broker.bootstrap_servers


@pytest.mark.parametrize("version", range(4, 7))
def test_coordinators_of_several_groups(wire, barnabas_broker, group_id, version):
    keys = [group_id, "", group_id]
    response = wire(FindCoordinatorRequest(coordinator_keys=keys), version)
    assert sorted(found.key for found in response.coordinators) == sorted(keys)
    assert {(found.error_code, f"{found.host}:{found.port}") for found in response.coordinators} == {
        (0, barnabas_broker.bootstrap_servers)
    }


def test_unknown_type_of_key_is_refused(wire, group_id):
    response = wire(FindCoordinatorRequest(key=group_id, key_type=9), 3)
    assert (response.error_code, response.node_id) == (ErrorCode.INVALID_REQUEST, -1)
    (found,) = wire(FindCoordinatorRequest(coordinator_keys=["k"], key_type=9), 4).coordinators
    assert (found.key, found.error_code, found.node_id) == ("k", ErrorCode.INVALID_REQUEST, -1)


@pytest.mark.parametrize(
    "key_type, setting",
    [(0, "offsets.topic.replication.factor"), (1, "transaction.state.log.replication.factor")],
)
def test_why_there_is_no_coordinator_is_logged_once(connect, caplog, key_type, setting):
    with BarnabasBroker({setting: "3"}) as broker:
        wire = connect(broker.bootstrap_servers)
        for _ in range(3):
            found = wire(FindCoordinatorRequest(key="k", key_type=key_type), 3)
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    (said,) = [record.getMessage() for record in caplog.records if "cannot be created" in record.getMessage()]
    assert "3 replicas" in said and f"{setting}=1" in said
