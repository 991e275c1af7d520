"""The run of one seed: faults, calm, the end of all clients, a last crash, and the final reads."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from simulation.virtual_time import run_virtual

from soak.checker import Finding, check, sift
from soak.history import Event
from soak.roles.common import Task
from soak.simulated import share_survey
from soak.simulated.bugs import BUGS
from soak.simulated.calm import pass_calm
from soak.simulated.cast import Cast
from soak.simulated.cluster import SimulatedCluster
from soak.simulated.cluster_bugs import CLUSTER_BUGS
from soak.simulated.convergence import await_moves, await_rest, await_whole
from soak.simulated.faults import Nemesis
from soak.simulated.invariants import Invariants
from soak.simulated.isolating import Isolating
from soak.simulated.joining import Joining
from soak.simulated.plan import LOG_MOVER, MOVER, PARTITIONS, TOPICS, UNREGISTER, Slot, slots
from soak.simulated.replicas import Replicas
from soak.simulated.share_bugs import SHARE_BUGS, SHARE_CLUSTER_BUGS
from soak.simulated.stage import RECYCLED, Stage, Trace
from soak.simulated.survey import Survey

#: seconds of virtual time
STORM = 12.0
#: what must not be even where unclean elections lose records: that the cluster itself comes to grief
_STRUCTURAL = frozenset(
    {
        "two-leaders",
        "wrong-leader-named",
        "epoch-fell",
        "bad-state",
        "zombie-controller",
        "deleted-without-word",
        "joined-early",
        "joined-without-fetch",
        "counted-without-fetch",
        "epoch-not-asked",
        "watermark-rose",
        "bounds",
        "not-whole",
        "no-rest",
        "stop-hung",
        "start-failed",
        "broker-failed",
        "exception",
        "server-error",
        "move-refused",
        "isolated-early",
        "simulation-failed",
    }
)


@dataclass
class Outcome:
    """The result of the run of a seed."""

    seed: int
    digest: str = ""
    #: of a kind each, most telling first: the checker's findings, and what the simulation saw itself
    findings: list[tuple[str, str]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    histories: list[list[Event]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    #: of CPU
    seconds: float = 0.0

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(kind for kind, _ in self.findings))


def simulate(
    seed: int,
    *,
    brokers: int = 1,
    storm: float = STORM,
    keep: bool = False,
    unclean: bool = False,
    bug: AbstractContextManager[object] | None = None,
    is_traced: bool = True,
) -> Outcome:
    """Run a seed to its end.

    Args:
        seed: determines all random choices.
        brokers: the number of brokers.
        storm: the duration of the faults, in seconds of virtual time.
        keep: the outcome also contains the lines of the trace and the histories.
        unclean: a client requests unclean elections. The checker then ignores lost records.
        bug: a context manager that plants a bug in the broker during the run.
        is_traced: the outcome contains the hash of the trace.
    """
    trace = Trace(keep=keep, is_off=not is_traced)
    outcome = Outcome(seed)
    said = _Said(trace)
    logger = logging.getLogger("barnabas")
    logger.addHandler(said)
    gc.disable()  # whatever a collection runs, it would run at another moment each time
    try:
        with bug or nullcontext():
            stage, faults = run_virtual(_run(seed, brokers, trace, storm, said, unclean=unclean))
        findings, _ = sift(check(stage.histories))
    finally:
        logger.removeHandler(said)
        gc.enable()
    outcome.findings = [(violation.kind, violation.text) for violation in stage.violations]
    outcome.findings += [(finding.kind, _told(finding)) for finding in findings]
    if unclean:
        outcome.findings = [found for found in outcome.findings if found[0] in _STRUCTURAL]
    outcome.counts = _counted(stage.histories) | {f"fault {kind}": n for kind, n in faults.items()}
    outcome.digest = trace.digest
    if keep:
        outcome.histories = stage.histories
        outcome.lines = trace.lines or []
    return outcome


def planted(name: str | None) -> AbstractContextManager[object]:
    """Return a context manager that plants the bug of this name; None plants no bug."""
    return (
        nullcontext() if name is None else (BUGS | SHARE_BUGS | CLUSTER_BUGS | SHARE_CLUSTER_BUGS)[name][1]()
    )


def outcome_of(seed: int, *, brokers: int, storm: float, bug: str | None, unclean: bool = False) -> Outcome:
    """Call `simulate` in a worker process. An exception is a finding, too."""
    began = time.process_time()
    gc.collect()
    gc.freeze()  # modules and caches: the next collection need not look at them again
    try:
        outcome = simulate(
            seed, brokers=brokers, storm=storm, unclean=unclean, bug=planted(bug), is_traced=False
        )
    except Exception as error:
        outcome = Outcome(seed, findings=[("simulation-failed", f"{type(error).__name__}: {error}")])
    outcome.seconds = time.process_time() - began
    return outcome


async def _run(
    seed: int, brokers: int, trace: Trace, storm: float, said: _Said, *, unclean: bool
) -> tuple[Stage, dict[str, int]]:
    stage = said.stage = Stage(seed, trace, brokers, is_unclean=unclean)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: _unhandled(stage, context))
    plan = stage.random("plan")
    durable = plan.random() < 0.5
    cluster = SimulatedCluster(stage, durable=durable)
    clock = cluster.brokers[1].clock
    cast = Cast(stage, clock, slots(seed, plan, brokers, has_mover=unclean))
    nemesis = Nemesis(stage, cluster, cast)
    invariants = Invariants(stage, cluster, cast)
    replicas = Replicas(stage, cluster)
    joining = Joining(stage, cluster)
    survey = Survey(stage, Task("survey", "survey", "simulated", "", "", seed, {}))
    with replicas.observing(), joining.observing(), Isolating(stage).observing():
        if not await cluster.up():
            return stage, {}
        await _create_topics(survey)
        await share_survey.configure(survey, _share_groups(cast))
        invariants.start()
        replicas.start()
        cast.start()
        nemesis.start()
        await asyncio.sleep(storm)
        await nemesis.calm()
        await cast.stop(name for name in cast.slots if name in (MOVER, LOG_MOVER, UNREGISTER))
        survey.recorder.note("calm")
        trace.note("calm")
        stage.has_faults = False
        await pass_calm(stage, cluster, cast, invariants)
        if brokers > 1 and not await await_whole(stage, cluster):
            survey.note_topics(TOPICS)
            return stage, nemesis.counts  # nothing would come to an end
        await _end(survey, cast)
        if brokers > 1:
            await await_rest(stage, cluster)
        await await_moves(stage, cluster)
        await invariants.stop()
        stage.has_faults = True
        for broker in cluster.brokers.values():
            broker.kill(power=durable)
        if await cluster.up() and (brokers == 1 or await await_whole(stage, cluster)):
            await survey.record(dict.fromkeys(slot.group for slot in cast.slots.values() if slot.group))
            await share_survey.record(survey, _share_groups(cast))
            invariants.check()
            replicas.check()
            await replicas.stop()
            await cluster.stop()
        else:
            survey.note_topics(TOPICS)
    return stage, nemesis.counts


async def _end(survey: Survey, cast: Cast) -> None:
    """Stop the producers, wait until the consumers reach the end of their topics, and stop them, too."""
    writers = [name for name, slot in cast.slots.items() if not slot.task.group]
    loops = [slot for slot in cast.slots.values() if slot.task.transactional_id and slot.group]
    readers = [slot for slot in cast.slots.values() if slot.group and slot not in loops]
    await cast.stop(writers)
    for stage in (loops, readers):  # the loops' outputs are read by others
        await survey.await_groups(stage)
    await cast.stop(slot.name for slot in [*loops, *readers])
    await survey.await_stable()
    await share_survey.await_finished(survey, _share_groups(cast))
    await cast.stop(name for name, slot in cast.slots.items() if slot.share_group)


def _share_groups(cast: Cast) -> dict[str, Slot]:
    """The share groups of a run, each with the slot of one of its members."""
    return {slot.share_group: slot for slot in cast.slots.values() if slot.share_group}


async def _create_topics(survey: Survey) -> None:
    for name, config in TOPICS.items():
        if name != RECYCLED:
            await survey.create(name, PARTITIONS[name], survey.stage.replicas, config)


class _Said(logging.Handler):
    """A log handler that reports each unexpected exception in the broker's log as a finding."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(logging.WARNING)
        self._trace = trace
        self.stage: Stage | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if not self._trace.is_off:
            self._trace.note(f"{record.levelname} {record.name} {record.getMessage()}")
        if record.exc_info is not None and record.exc_info[1] is not None and self.stage is not None:
            error = record.exc_info[1]
            self.stage.complain("exception", f"{record.getMessage()}: {type(error).__name__}: {error}")


def _unhandled(stage: Stage, context: dict[str, object]) -> None:
    error = context.get("exception")
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
            elif what == "letters":
                counts["dead letters"] += len(event["letters"])
            elif what == "ended" and event["ok"]:
                counts["committed" if event["commit"] else "aborted"] += 1
            elif what == "committed" and event["ok"]:
                counts["offset commits"] += 1
    return dict(counts)
