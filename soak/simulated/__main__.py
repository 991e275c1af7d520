"""`python -m soak.simulated`: runs whole brokers in virtual time, from seeds."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from soak.report import json_line
from soak.simulated.bugs import BUGS
from soak.simulated.cluster_bugs import CLUSTER_BUGS
from soak.simulated.run import STORM, Outcome, outcome_of, planted, simulate
from soak.simulated.share_bugs import SHARE_BUGS, SHARE_CLUSTER_BUGS

#: findings of one kind that are shown
_SHOWN = 3
_WORKERS = 2
_OF_ONE_BROKER = BUGS | SHARE_BUGS
_OF_CLUSTERS = CLUSTER_BUGS | SHARE_CLUSTER_BUGS


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m soak.simulated", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50, help="how many seeds (%(default)s)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (%(default)s)")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--brokers", type=int, default=1, help="how many brokers (%(default)s)")
    parser.add_argument("--steps", type=float, default=STORM, help="seconds of faults (%(default)g)")
    parser.add_argument(
        "--unclean",
        action="store_true",
        help="with unclean elections: judges the cluster, and not what clients lose by them",
    )
    parser.add_argument("--trace", action="store_true", help="print all that happens, too")
    parser.add_argument("--bug", choices=sorted(_OF_ONE_BROKER | _OF_CLUSTERS), help="plant a known bug")
    parser.add_argument(
        "--bugs",
        action="store_true",
        help="plant each known bug in turn: of a broker, or with --brokers of a cluster",
    )
    parser.add_argument("--minutes", type=float, help="as many seeds as this time allows, from --first on")
    parser.add_argument("--jobs", type=int, default=_WORKERS, help="processes (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each seed, and no more")
    return parser.parse_args(arguments)


def outcomes(options: argparse.Namespace, bug: str | None) -> Iterator[Outcome]:
    """Yield the outcomes of all seeds, in the order of the seeds."""
    seeds = range(options.first, options.first + options.seeds)
    work = partial(outcome_of, brokers=options.brokers, storm=options.steps, bug=bug, unclean=options.unclean)
    if options.jobs == 1:
        yield from map(work, seeds)
        return
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(work, seeds)


def show(outcome: Outcome, options: argparse.Namespace) -> None:
    """Print the findings of a seed, and the command that repeats it."""
    more = "" if options.brokers == 1 else f" --brokers {options.brokers}"
    more += "" if options.steps == STORM else f" --steps {options.steps:g}"
    more += " --unclean" if options.unclean else ""
    more += f" --bug {options.bug}" if options.bug else ""
    print(f"seed {outcome.seed}: python -m soak.simulated --seed {outcome.seed}{more}", flush=True)
    counts = Counter(kind for kind, _ in outcome.findings)
    for kind, count in counts.items():
        print(f"  {count} x {kind}")
        for text in [text for found, text in outcome.findings if found == kind][:_SHOWN]:
            print(f"    {text[:600]}")


def one(options: argparse.Namespace) -> int:
    outcome = simulate(
        options.seed,
        brokers=options.brokers,
        storm=options.steps,
        keep=options.trace,
        unclean=options.unclean,
        bug=planted(options.bug),
    )
    for line in outcome.lines:
        print(line)
    show(outcome, options)
    print(f"  {outcome.counts}")
    print(f"  trace {outcome.digest}")
    return 1 if outcome.findings else 0


def many(options: argparse.Namespace) -> int:
    began = time.monotonic()
    failed = done = 0
    kinds: Counter[str] = Counter()
    while True:
        for outcome in outcomes(options, options.bug):
            done += 1
            if options.json:
                print(json_line(outcome.seed, outcome.seconds, outcome.findings, outcome.counts), flush=True)
            if outcome.findings:
                failed += 1
                kinds.update(outcome.kinds)
                if not options.json:
                    show(outcome, options)
        options.first += options.seeds
        if options.minutes is None or time.monotonic() - began > options.minutes * 60:
            break
    seconds = time.monotonic() - began
    if not options.json:
        print(f"{done} seeds in {seconds:.0f} s, {failed} with findings {dict(kinds) or ''}")
    return 1 if failed else 0


def all_bugs(options: argparse.Namespace) -> int:
    """Print a table: for each planted bug, the number of seeds that catch it, and their findings. Return the
    exit code.
    """
    missed = 0
    for bug, (doc, _) in (_OF_ONE_BROKER if options.brokers == 1 else _OF_CLUSTERS).items():
        caught: Counter[str] = Counter()
        seeds = 0
        first: int | None = None
        for outcome in outcomes(options, bug):
            if outcome.findings:
                seeds += 1
                first = outcome.seed if first is None else first
                caught.update(outcome.kinds)
        by = ", ".join(f"`{kind}` {count}" for kind, count in caught.most_common(4))
        print(f"| {bug} | {doc} | {seeds} of {options.seeds} | {first} | {by} |", flush=True)
        missed += not seeds
    return 1 if missed else 0


def main() -> int:
    options = parse()
    if options.seed is not None:
        return one(options)
    return all_bugs(options) if options.bugs else many(options)


if __name__ == "__main__":
    sys.exit(main())
