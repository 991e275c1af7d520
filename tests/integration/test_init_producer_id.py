"""InitProducerId: each producer gets its own id."""

import pytest

from barnabas.kafka.protocol.messages.init_producer_id import InitProducerIdRequest


@pytest.mark.parametrize("version", range(6))
def test_every_version_hands_out_an_id_of_epoch_0(wire, version):
    response = wire(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), version)
    assert (response.error_code, response.producer_epoch) == (0, 0)
    assert response.producer_id >= 0


def test_no_id_is_handed_out_twice(connect):
    request = InitProducerIdRequest(transactional_id=None)
    connections = [connect() for _ in range(4)]
    headers = [(wire, wire.send(request)) for _ in range(600) for wire in connections]
    ids = [wire.receive(header).producer_id for wire, header in headers]
    assert len(set(ids)) == len(ids) == 2400


def test_a_producer_that_has_lost_its_way_gets_a_new_id(wire):
    first = wire(InitProducerIdRequest(transactional_id=None)).producer_id
    again = wire(InitProducerIdRequest(transactional_id=None, producer_id=first, producer_epoch=0))
    assert again.error_code == 0
    assert (again.producer_id, again.producer_epoch) != (first, 0)
