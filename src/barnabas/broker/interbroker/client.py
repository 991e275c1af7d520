"""The channels from one broker to all others."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from random import Random

from barnabas.base.environment.network import Network
from barnabas.base.types import BrokerId
from barnabas.broker.interbroker.channel import Address, Channel, ChannelSettings
from barnabas.broker.interbroker.login import PeerLogin


class BrokerClient:
    """The channels of a broker to the others, one for each broker and purpose.

    A channel is created when it is first used. A purpose is a name that the caller chooses ("fetch",
    "control", "markers"). Requests of one purpose share a connection, and the peer answers them in order.
    Requests of one purpose do not delay those of another.

    Args:
        network: network of this process.
        address_of: returns the present address of a broker, by its id; None if it is not known. It is called
            before each attempt to connect, so that a new address of a broker is used.
        client_id: client id in each request.
        rng: varies the back-off between attempts to connect.
        settings: limits of each channel; None for the defaults.
        tls: TLS context; None for no TLS.
        login: SASL login; None for no login.
    """

    def __init__(
        self,
        network: Network,
        address_of: Callable[[BrokerId], Address | None],
        *,
        client_id: str,
        rng: Random,
        settings: ChannelSettings | None = None,
        tls: ssl.SSLContext | None = None,
        login: PeerLogin | None = None,
    ) -> None:
        self._network = network
        self._address_of = address_of
        self.client_id = client_id
        self._rng = rng
        self._settings = settings
        #: the TLS context of new channels; None for no TLS
        self.tls = tls
        self._login = login
        self._channels: dict[tuple[BrokerId, str], Channel] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def channel(self, broker_id: BrokerId, purpose: str) -> Channel:
        """Return the channel to a broker for a purpose. The channel connects when a request is submitted.

        Call this for each request, because `forget` closes the channel when the broker leaves or restarts.
        """
        key = broker_id, purpose
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = Channel(
                self._network,
                lambda: self._address_of(broker_id),
                name=f"broker {broker_id} ({purpose})",
                client_id=self.client_id,
                rng=self._rng,
                settings=self._settings,
                tls=self.tls,
                login=self._login,
            )
        return channel

    def forget(self, broker_id: BrokerId, purpose: str | None = None) -> None:
        """Begin to close the channels to a broker that has left or restarted, and return at once.

        Requests without an answer fail (`ChannelClosedError`). The next call of `channel` makes a new
        channel.

        Args:
            broker_id: the broker.
            purpose: close only the channel for this purpose, because the broker now supports other versions
                of APIs than the open connection knows; None to close all channels to the broker.
        """
        for key in [key for key in self._channels if key[0] == broker_id and purpose in (None, key[1])]:
            closing = asyncio.ensure_future(self._channels.pop(key).close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self, *, grace: float = 0.0) -> None:
        """Close all channels. Wait at most `grace` seconds for the answers to sent requests."""
        channels, self._channels = self._channels, {}
        await asyncio.gather(*(channel.close(grace=grace) for channel in channels.values()), *self._closing)
