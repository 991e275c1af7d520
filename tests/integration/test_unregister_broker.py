"""UnregisterBroker is refused, as it would be by a cluster whose registrations are sessions."""

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.unregister_broker import UnregisterBrokerRequest


@pytest.mark.parametrize(
    ("broker", "code"), [(1, ErrorCode.UNSUPPORTED_VERSION), (7, ErrorCode.BROKER_ID_NOT_REGISTERED)]
)
def test_no_broker_is_unregistered(wire, broker, code):
    response = wire(UnregisterBrokerRequest(broker_id=broker))
    assert response.error_code == code
    assert f"broker {broker}" in response.error_message
