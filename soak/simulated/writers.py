"""Clients that write: as idempotent producers, and in transactions."""

from __future__ import annotations

from barnabas.base.environment.clock import Clock
from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from soak.roles.common import Draft, Task, Writer
from soak.simulated.client import Client, GaveUp, named
from soak.simulated.sender import WINDOW, Sender
from soak.simulated.stage import RECYCLED, Stage
from soak.simulated.transaction import TransactionalProducer, Unfinished

#: batches that a producer has waiting before it makes no more
_BACKLOG = 12
_COMMITS = 0.75


class Produce(Client):
    """Sends idempotent records, without waiting for an answer before the next one."""

    role = "produce"

    def __init__(self, stage: Stage, task: Task, life: int, clock: Clock, *, window: int = WINDOW) -> None:
        super().__init__(stage, task, life)
        self._clock = clock
        self._window = window

    async def run(self) -> None:
        writer = Writer(named(self.task, self.name), self.recorder)
        while not self.stopping:
            sender = await self._sender(writer)
            while not self.stopping and sender.refused is None:
                if sender.waiting < _BACKLOG:
                    first = writer.draft(self.task.topics)
                    drafts = [first]
                    for _ in range(self.random.randrange(self.task.batch or 4)):
                        draft = writer.draft({first.place[0]: self.task.topics[first.place[0]]})
                        drafts.append(draft)
                    for place in dict.fromkeys(draft.place for draft in drafts):
                        sender.put(place, [draft for draft in drafts if draft.place == place])
                await self.rest()
            if not await sender.flush():
                assert sender.refused is not None
                if sender.refused is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and RECYCLED in self.task.topics:
                    continue  # a broker that lags has another topic of the name: so it is with Apache Kafka
                self.stage.complain(
                    "producer-refused", f"{self.name}, which did nothing wrong: {sender.refused.name}"
                )

    async def _sender(self, writer: Writer) -> Sender:
        response = await self.insist(
            lambda: InitProducerIdRequest(transactional_id=None),
            lambda response: [response.error_code],
            give_up=lambda: self.stopping,
        )
        if response is None:
            raise GaveUp("stopped before it had a producer id")
        return Sender(
            self,
            writer,
            self._clock,
            producer_id=response.producer_id,
            producer_epoch=response.producer_epoch,
            max_version=13 if self.by_id else 12,
            window=self._window,
        )


class Transact(Client):
    """Writes transactions to several topics. It aborts some of them, and leaves some open for a while."""

    role = "transact"

    def __init__(self, stage: Stage, task: Task, life: int, clock: Clock, *, is_v2: bool) -> None:
        super().__init__(stage, task, life)
        self._writer = Writer(named(task, self.name), self.recorder)
        self._producer = TransactionalProducer(self, self._writer, clock, is_v2=is_v2)

    async def run(self) -> None:
        await self._producer.init()
        while not self.stopping:
            number = self._producer.begin()
            try:
                for _ in range(self.random.randrange(1, 4)):
                    drafts: list[Draft] = [
                        self._writer.draft(self.task.topics, number)
                        for _ in range(self.random.randrange(1, 4))
                    ]
                    await self._producer.send(drafts)
                    await self.pause_for(self.random.expovariate(1 / 0.05))
                await self._producer.flush()
            except Unfinished:
                await self._producer.abort()
                continue
            if self.random.random() < 0.1:
                await self.pause_for(self.random.uniform(0.5, 4.0))
            if self.random.random() < _COMMITS:
                await self._producer.commit()
            else:
                await self._producer.abort()
            await self.rest()
