"""A request sees the effects of the requests before it, although other brokers decide or copy them."""

from __future__ import annotations

from tests.integration.request_pairs import PAIRS, OneConnection


def test_on_every_broker_a_pipelined_request_sees_what_the_one_before_it_has_changed(
    barnabas_cluster, connect
):
    cluster = barnabas_cluster(brokers=3)
    for broker in cluster.brokers:  # one of them is the controller, the others ask it
        connection = OneConnection(connect(cluster.address_of(broker)))
        for pair in PAIRS:
            for turn in range(3):
                pair(connection, turn)
