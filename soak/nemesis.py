"""The schedule of faults of a broker and of the clients. The seed determines it before the soak begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from soak.plan import Slot

BROKER = "broker"
KILL, PAUSE, RESTART, ZOMBIE = "kill", "pause", "restart", "zombie"
FILL, FILL_AND_KILL = "fill the disk of", "fill the disk of and kill"


@dataclass(frozen=True)
class Fault:
    """A fault that begins `at` seconds after the start and lasts `seconds`.

    - kill: SIGKILL, and a start afterwards. The supervisor of several brokers starts its brokers.
    - pause: SIGSTOP, and SIGCONT afterwards.
    - restart: a clean stop and a start.
    - zombie: a client with a transactional id is paused. Another client takes its id, and then the first
      client continues.
    - fill the disk: all except `left` bytes. Afterwards the disk is freed, and the broker must continue by
      itself.
    - fill and kill: in addition, SIGKILL and a start after half of the time, on the full disk. If this start
      fails, the soak starts the broker again when the disk is free.
    """

    at: float
    kind: str
    target: str
    seconds: float
    left: int = 0


def schedule(
    seed: int, seconds: float, slots: Sequence[Slot], gap: float, *, has_disk: bool = True, brokers: int = 1
) -> list[Fault]:
    """Return the faults in order of time. All of them end before `seconds`.

    Args:
        gap: the mean pause between two faults of the broker, in seconds.
        has_disk: whether the soak can fill the broker's disk. Without this, the other faults are the same.
        brokers: number of brokers of one machine. Several are also killed one by one; `BROKER` is their
            supervisor. With any number, the other faults are the same.
    """
    random = Random(seed)
    faults = [*_of_broker(random, seconds, gap), *of_clients(random, seconds, slots, gap)]
    if not has_disk:
        faults = [fault for fault in faults if fault.kind not in (FILL, FILL_AND_KILL)]
    if brokers > 1:
        faults += _of_members(Random(f"{seed} members"), seconds, brokers, gap)
    return sorted(faults, key=lambda fault: fault.at)


def member(number: int) -> str:
    """Return the target of faults of one of several brokers of a machine, whose id is `number`."""
    return f"{BROKER} {number}"


def _of_members(random: Random, seconds: float, brokers: int, gap: float) -> list[Fault]:
    faults: list[Fault] = []
    at = random.uniform(2, 5)
    while at < seconds:
        faults.append(Fault(at, KILL, member(random.randint(1, brokers)), 0))
        at += random.uniform(0, 1) if random.random() < 0.2 else random.expovariate(1 / gap)
    return faults


def _of_broker(random: Random, seconds: float, gap: float) -> list[Fault]:
    faults: list[Fault] = []
    at = random.uniform(0.2, 2)  # early: the topics are new
    while True:
        kind = random.choices((KILL, PAUSE, RESTART, FILL, FILL_AND_KILL), (10, 4, 4, 2, 1))[0]
        # Mostly short; sometimes longer than clients wait, or than sessions and transactions last.
        lasts = random.choice((0, random.uniform(0, 2), random.uniform(0, 4), random.uniform(4, 12)))
        if kind in (FILL, FILL_AND_KILL):
            lasts = random.uniform(0.5, 8)
        # Sometimes some records still find room, so that other things fail first.
        left = random.choice((0, random.randrange(10_000), random.randrange(300_000)))
        if at + lasts > seconds:
            return faults
        faults.append(Fault(at, kind, BROKER, lasts, left if kind in (FILL, FILL_AND_KILL) else 0))
        # Now and then again at once: while it recovers, or has just begun to serve.
        at += lasts + (random.uniform(0, 1) if random.random() < 0.2 else random.expovariate(1 / gap))


def of_clients(random: Random, seconds: float, slots: Sequence[Slot], gap: float) -> list[Fault]:
    faults: list[Fault] = []
    at = random.uniform(5, 10)
    while slots:
        slot = random.choice(slots)
        kinds = (KILL, PAUSE, ZOMBIE) if "transactional_id" in slot.task else (KILL, PAUSE)
        kind = random.choice(kinds)
        lasts = {KILL: random.uniform(0, 3), PAUSE: random.uniform(0.5, 14), ZOMBIE: random.uniform(6, 16)}
        if at + lasts[kind] > seconds:
            return faults
        faults.append(Fault(at, kind, slot.name, lasts[kind]))
        at += random.expovariate(1 / gap)
    return faults
