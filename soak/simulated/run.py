"""One seed's run: a storm, a calm, the end of all clients, a last crash, and what is left."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from barnabas.errors import ErrorCode
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.simulation.virtual_time import run_virtual
from soak.checker import Finding, check, sift
from soak.history import Event
from soak.roles.common import Task
from soak.simulated.broker import SimulatedBroker
from soak.simulated.bugs import planted
from soak.simulated.cast import Cast
from soak.simulated.faults import Nemesis
from soak.simulated.invariants import Invariants
from soak.simulated.plan import PARTITIONS, RECYCLED, TOPICS, settings, slots
from soak.simulated.stage import Stage, Trace
from soak.simulated.survey import Survey

#: seconds of virtual time
STORM = 12.0
_CALM = 11.0
_STARTING = 30.0


@dataclass
class Outcome:
    """What came of a seed."""

    seed: int
    digest: str = ""
    #: of a kind each, most telling first: the checker's findings, and what the simulation saw itself
    findings: list[tuple[str, str]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    histories: list[list[Event]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(kind for kind, _ in self.findings))


def simulate(
    seed: int, *, storm: float = STORM, keep: bool = False, bug: AbstractContextManager[object] | None = None
) -> Outcome:
    """Run a seed to its end.

    Args:
        seed: decides all that happens.
        storm: for how long there are faults, in seconds of virtual time.
        keep: the outcome has the trace's lines and the histories, too.
        bug: entered around it: what it plants in the broker.
    """
    trace = Trace(keep=keep)
    outcome = Outcome(seed)
    said = _Said(trace)
    logger = logging.getLogger("barnabas")
    logger.addHandler(said)
    gc.disable()  # whatever a collection runs, it would run at another moment each time
    try:
        with bug or nullcontext():
            stage, faults = run_virtual(_run(seed, trace, storm, said))
    finally:
        logger.removeHandler(said)
        gc.enable()
    findings, _ = sift(check(stage.histories))
    outcome.findings = [(violation.kind, violation.text) for violation in stage.violations]
    outcome.findings += [(finding.kind, _told(finding)) for finding in findings]
    outcome.counts = _counted(stage.histories) | {f"fault {kind}": n for kind, n in faults.items()}
    outcome.digest = trace.digest
    if keep:
        outcome.histories = stage.histories
        outcome.lines = trace.lines or []
    return outcome


def outcome_of(seed: int, *, storm: float, bug: str | None) -> Outcome:
    """`simulate`, for a worker process: an end by an exception is a finding, too."""
    try:
        return simulate(seed, storm=storm, bug=planted(bug))
    except Exception as error:
        return Outcome(seed, findings=[("simulation-failed", f"{type(error).__name__}: {error}")])


async def _run(seed: int, trace: Trace, storm: float, said: _Said) -> tuple[Stage, dict[str, int]]:
    stage = Stage(seed, trace)
    said.stage = stage
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: _unhandled(stage, context))
    plan = stage.random("plan")
    durable = plan.random() < 0.5
    broker = SimulatedBroker(stage, settings(fsync=durable))
    cast = Cast(stage, broker.clock, slots(seed, plan))
    nemesis = Nemesis(stage, broker, cast, durable=durable)
    invariants = Invariants(stage, broker, cast)
    survey = Survey(stage, Task("survey", "survey", "simulated", "", "", seed, {}))
    if not await broker.start():
        return stage, {}
    await _create_topics(survey)
    invariants.start()
    cast.start()
    nemesis.start()
    await asyncio.sleep(storm)
    await nemesis.calm()
    survey.recorder.note("calm")
    trace.note("calm")
    await asyncio.sleep(_CALM)
    await _end(survey, cast)
    await invariants.stop()
    broker.kill(power=durable)
    if await broker.start():
        await survey.record(dict.fromkeys(slot.group for slot in cast.slots.values() if slot.group))
        invariants.check()
        await broker.stop()
    else:
        stage.complain("start-failed", "the broker does not start in the end")
    return stage, nemesis.counts


async def _end(survey: Survey, cast: Cast) -> None:
    """Stop the writers, let the readers come to the end, stop them too."""
    writers = [name for name, slot in cast.slots.items() if not slot.group]
    loops = [slot for slot in cast.slots.values() if slot.task.transactional_id and slot.group]
    readers = [slot for slot in cast.slots.values() if slot.group and slot not in loops]
    await cast.stop(writers)
    for stage in (loops, readers):  # the loops' outputs are read by others
        await survey.await_groups(stage)
    await cast.stop(slot.name for slot in [*loops, *readers])
    await survey.await_stable()


async def _create_topics(survey: Survey) -> None:
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=PARTITIONS[name],
            replication_factor=1,
            configs=[CreatableTopicConfig(name=n, value=v) for n, v in config.items()],
        )
        for name, config in TOPICS.items()
        if name != RECYCLED
    ]
    response = await survey.ask(CreateTopicsRequest(topics=topics, timeout_ms=3000), timeout=_STARTING)
    for topic in response.topics:
        if topic.error_code != ErrorCode.NONE:
            raise RuntimeError(f"{topic.name} cannot be created: {topic.error_code} {topic.error_message}")


class _Said(logging.Handler):
    """What the broker logs: an exception that nobody expected is a finding."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(logging.WARNING)
        self._trace = trace
        self.stage: Stage | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self._trace.note(f"{record.levelname} {record.name} {record.getMessage()}")
        if record.exc_info is not None and record.exc_info[1] is not None and self.stage is not None:
            error = record.exc_info[1]
            self.stage.complain("exception", f"{record.getMessage()}: {type(error).__name__}: {error}")


def _unhandled(stage: Stage, context: dict[str, object]) -> None:
    error = context.get("exception")
    if isinstance(error, ConnectionAbortedError):
        return  # the handshake of a client that was killed in it
    stage.complain("exception", f"{context.get('message')}: {type(error).__name__}: {error}")


def _told(finding: Finding) -> str:
    return f"{finding.text} {finding.evidence}"


def _counted(histories: list[list[Event]]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for events in histories:
        for event in events:
            what = event["what"]
            if what in ("ack", "assigned"):
                counts[what] += 1
            elif what == "poll":
                counts["read"] += len(event["records"])
            elif what == "ended" and event["ok"]:
                counts["committed" if event["commit"] else "aborted"] += 1
            elif what == "committed" and event["ok"]:
                counts["offset commits"] += 1
    return dict(counts)
