"""Requests to other brokers: asynchronous, pipelined, within limits, over any `Network`.

    client = BrokerClient(network, address_of, client_id="broker-1", rng=rng)
    fetches = client.channel(2, "fetch")      # one connection to broker 2; a parked fetch blocks nothing else
    control = client.channel(2, "control")    # another one
        response = await control.send(request)    # in the highest version that both sides support
        futures = [control.submit(r) for r in requests]  # pipelined: the peer executes them in this order
    await client.close()

A failed request raises a `ChannelError`, whose `may_have_been_carried_out` says whether the peer may have
executed it. A channel never retries a request. If a caller retries, the back-off between attempts to connect
limits its rate.

Clients in simulations and in `bench/` also use `Channel`. This example uses the simulated network:

    network = SimulatedNetwork(random.Random(seed))
    channel = Channel(
        network.host("client-1"), lambda: ("broker-1", 9092), name="broker-1", client_id="client-1", rng=rng
    )
    try:
        response = await channel.send(ProduceRequest(...), timeout_s=5.0)
    except ChannelError as error:
                ...  # error.may_have_been_carried_out: False means that the request was certainly not
                executed

client: the channels to all brokers, by broker and purpose.
channel: requests to one peer, over one connection, which is opened again when needed.
connection: one connection: frames, correlation ids, responses in order.
login: SASL on a new connection.
errors: reasons why a request has no response.
"""

from barnabas.broker.interbroker.channel import Address, Channel, ChannelSettings
from barnabas.broker.interbroker.client import BrokerClient
from barnabas.broker.interbroker.errors import (
    ChannelClosedError,
    ChannelError,
    ChannelFullError,
    DisconnectedError,
    NotConnectedError,
    RequestTimeoutError,
    UnsupportedVersionError,
)
from barnabas.broker.interbroker.login import PeerLogin

__all__ = [
    "Address",
    "BrokerClient",
    "Channel",
    "ChannelClosedError",
    "ChannelError",
    "ChannelFullError",
    "ChannelSettings",
    "DisconnectedError",
    "NotConnectedError",
    "PeerLogin",
    "RequestTimeoutError",
    "UnsupportedVersionError",
]
