"""Requests to other brokers: asynchronous, pipelined, within limits, over any `Network`.

    client = BrokerClient(network, address_of, client_id="broker-1", rng=rng)
    fetches = client.channel(2, "fetch")    # one connection to broker 2: a slow fetch delays only fetches
    control = client.channel(2, "control")  # a second connection to broker 2
    response = await control.send(request)  # in the highest version that both sides support
    futures = [control.submit(r) for r in requests]  # pipelined: the peer executes them in this order
    await client.close()

If a request gets no response, `send` raises a `ChannelError`. Its `may_have_been_carried_out` says whether
the peer may have executed the request. A channel never repeats a request. A caller can repeat a failed
request at once: the channel waits for its back-off between two attempts to connect.

Clients in simulations and in `bench/` also use `Channel`. This example uses the simulated network:

    network = SimulatedNetwork(random.Random(seed))
    channel = Channel(
        network.host("client-1"), lambda: ("broker-1", 9092), name="broker-1", client_id="client-1", rng=rng
    )
    try:
        response = await channel.send(ProduceRequest(...), timeout_s=5.0)
    except ChannelError as error:
        if not error.may_have_been_carried_out:
            ...  # the broker has certainly not executed the request

The modules:

client: the channels of one broker to all others, by broker and purpose.
channel: requests to one peer over one connection, which is opened again when a request needs it.
connection: one connection: frames, correlation ids, responses in order.
login: SASL logins on new connections.
errors: the reasons why a request has no response.
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
