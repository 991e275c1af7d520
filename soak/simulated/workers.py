"""The members of share groups: they acquire records, and accept, release, reject or keep them."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

from soak.checker.deliveries import ACCEPT, REJECT, RELEASE, RENEW
from soak.roles.common import Task
from soak.simulated.client import GROUP, Client, Place
from soak.simulated.share_member import ShareMember
from soak.simulated.share_sessions import Delivered, ShareSessions
from soak.simulated.stage import Stage

#: no answer about a record: its lock has to end
_KEEP = -1
#: types and how often a worker chooses each; a poison record is one that no worker can process
_USUAL = ((ACCEPT, 84), (RELEASE, 6), (REJECT, 4), (_KEEP, 2), (RENEW, 4))
_OF_POISON = ((RELEASE, 60), (REJECT, 10), (_KEEP, 30))
_POISONED = 24
_MAX_WAIT = 0.4
#: how likely a client asks for metadata before a fetch, as clients do periodically
_REFRESH_BUSY, _REFRESH_IDLE = 0.15, 0.6


class _Verdicts(dict[int, dict[Place, dict[int, int]]]):
    """Acknowledgement types by the broker that delivered, partition and offset."""

    def add(self, delivered: Delivered, kind: int) -> None:
        self.setdefault(delivered.broker, {}).setdefault(delivered.place, {})[delivered.offset] = kind

    def accepted(self) -> _Verdicts:
        """The same records, to be accepted."""
        return _Verdicts(
            {
                broker: {place: dict.fromkeys(offsets, ACCEPT) for place, offsets in of_one.items()}
                for broker, of_one in self.items()
            }
        )


class Work(Client):
    """One worker of a share group."""

    role = "work"

    def __init__(self, stage: Stage, task: Task, life: int) -> None:
        super().__init__(stage, task, life)
        #: whether it acknowledges late, and keeps to the leaders that it knows
        self.is_slow = False
        self._max_version = self.random.choice([1, 2, 2])
        self._member = ShareMember(self)
        self._sessions = ShareSessions(self, self._member.member_id, max_version=self._max_version)
        #: what the next fetch acknowledges
        self._with_fetch = _Verdicts()
        #: what is acknowledged later: when, and what
        self._later: list[tuple[float, _Verdicts]] = []

    @property
    def held(self) -> Iterator[tuple[int, Place]]:
        """The brokers and the partitions of records that the worker acknowledges later."""
        for _, verdicts in self._later:
            for broker, places in verdicts.items():
                yield from ((broker, place) for place in places)

    @property
    def has_ended(self) -> bool:
        """Whether the worker leaves its group now."""
        return self.stopping

    async def run(self) -> None:
        await self.find_coordinator(self.task.group, GROUP)
        refresh = 0.0
        while not self.has_ended:
            await self._member.step()
            if self.random.random() < refresh and not self.is_slow:
                await self.learn(*self.task.topics)
            verdicts, self._with_fetch = self._with_fetch, _Verdicts()
            delivered = await self._sessions.fetch(list(self._member.assigned), verdicts, _MAX_WAIT)
            refresh = _REFRESH_BUSY if delivered else _REFRESH_IDLE
            await self._handle(delivered)
            await self._acknowledge_due()
            await self.rest()
        await self._sessions.close()
        await self._member.leave()

    async def _handle(self, delivered: list[Delivered]) -> None:
        verdicts = _Verdicts()
        renewed = _Verdicts()
        for each in delivered:
            kind = self._judge(each)
            if kind == RENEW:
                renewed.add(each, RENEW)
            elif kind != _KEEP:
                verdicts.add(each, kind)
        if renewed:
            await self._renew(renewed)
        choice = 1.0 if self.is_slow else self.random.random()
        if choice < 0.35:
            self._with_fetch = verdicts
        elif choice < 0.65:
            await self.pause_for(self.random.expovariate(1 / 0.05))
            await self._sessions.acknowledge(verdicts)
        else:  # sometimes after the lock has ended
            self._later.append((self.time() + self.random.uniform(0.3, 3.0), verdicts))

    def _judge(self, delivered: Delivered) -> int:
        is_poison = crc32(delivered.id.encode()) % _POISONED == 0
        kinds, weights = zip(*(_OF_POISON if is_poison else _USUAL), strict=True)
        kind: int = self.random.choices(kinds, weights)[0]
        return ACCEPT if kind == RENEW and self._max_version < 2 else kind

    async def _renew(self, renewed: _Verdicts) -> None:
        """Extend locks, and accept the records after the time of the first lock."""
        await self.pause_for(self.random.uniform(0.0, 1.5))
        await self._sessions.acknowledge(renewed)
        self._later.append((self.time() + self.random.uniform(0.5, 2.0), renewed.accepted()))

    async def _acknowledge_due(self) -> None:
        now = self.time()
        due = [verdicts for at, verdicts in self._later if at <= now or self.stopping]
        self._later = [] if self.stopping else [each for each in self._later if each[0] > now]
        for verdicts in due:
            await self._sessions.acknowledge(verdicts)
