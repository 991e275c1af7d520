"""Clients that must not affect others: they do not read their answers, or disconnect in the middle of a
request.
"""

from __future__ import annotations

import asyncio

from barnabas.kafka.protocol.framing import RequestHeader, encode_request
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.kafka.protocol.messages.metadata import MetadataRequest
from barnabas.kafka.protocol.schema import Request
from soak.simulated.client import Client
from soak.simulated.stage import PORT, host_of

_CONNECT_SECONDS = 5.0


class Rude(Client):
    """Connects, sends many requests and reads no answer. Then it closes or aborts the connection, also within
    a request.
    """

    role = "rude"

    async def run(self) -> None:
        while not self.stopping:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    transport, _ = await self.host.connect(
                        asyncio.Protocol, host_of(self.routes.anyone()), PORT
                    )
            except OSError:
                await self.back_off()
                continue
            if self.random.random() < 0.6:
                transport.pause_reading()
            for number in range(self.random.randrange(60)):
                transport.write(self._frame(number, self._request()))
            await self.pause_for(self.random.uniform(0.1, 4.0))
            if self.random.random() < 0.5:
                frame = self._frame(99, self._request())
                transport.write(frame[: self.random.randrange(1, len(frame))])
            if self.random.random() < 0.5:
                transport.abort()
            else:
                transport.close()
            await self.rest()

    def _request(self) -> Request:
        if self.random.random() < 0.2:
            return MetadataRequest(topics=None)
        topics = [
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=65536)
                    for number in range(count)
                ],
            )
            for topic, count in self.task.topics.items()
        ]
        return FetchRequest(max_wait_ms=100, min_bytes=1, topics=topics)

    def _frame(self, number: int, request: Request) -> bytes:
        version = min(request.versions[1], 12)
        header = RequestHeader(request.api_key, version, number, self.name)
        return b"".join(bytes(chunk) for chunk in encode_request(header, request))
