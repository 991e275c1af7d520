"""Long runs that a user can stop and continue: seeds of the simulation and soak tests, and their findings.

    python -m soak.night                     # runs until you stop it (SIGINT or SIGTERM)
    python -m soak.night --minutes 60
    python -m soak.night --soaks             # also real clusters: needs root and a ZooKeeper
    python -m soak.night --report            # prints the results of all nights as tables

`done.jsonl` in the folder gets a line for each seed and each soak that has ended. So a stop loses only the
current one, and the next night continues with the next seed. A night runs a copy of the code of the current
commit (`code/COMMIT`), so you can edit the checkout meanwhile. The runs have the lowest priority and follow
one after the other.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from barnabas.base.system.orphans import environment_that_ends

ROOT = Path(__file__).resolve().parent.parent
#: the folders that a run needs
_CODE = ("src", "bench", "simulation", "soak")
_LOWEST_PRIORITY = 19
#: seeds of a process: a new one begins with a small heap
_SEEDS_A_TURN = 25
_SOAK_MINUTES = 10
#: findings of one line that are kept whole
_KEPT = 5


@dataclass(frozen=True)
class Kind:
    """A kind of run, with the arguments of `soak.simulated` or of `soak`."""

    name: str
    arguments: Sequence[str]
    #: the seeds of the kind are so large a part of all
    weight: int
    first: int = 200_000
    #: a soak's minutes; 0 for seeds of the simulation
    minutes: int = 0

    def command(self, seed: int) -> list[str]:
        """Return the command that runs `seed`, and the following seeds of the same turn."""
        if self.minutes:
            return ["soak", *self.arguments, "--minutes", str(self.minutes), "--seed", str(seed), "--json"]
        seeds = ["--first", str(seed), "--seeds", str(_SEEDS_A_TURN), "--jobs", "1", "--json"]
        return ["soak.simulated", *self.arguments, *seeds]


SEEDS = (
    Kind("clusters of three", ("--brokers", "3"), 80),
    Kind("one broker", (), 10),
    Kind("clusters with unclean elections", ("--brokers", "3", "--unclean"), 10),
)
SOAKS = Kind("soaks of three brokers", ("--brokers", "3"), 1, minutes=_SOAK_MINUTES)


@dataclass
class Done:
    """The result of a seed or a soak that has ended."""

    commit: str
    kind: str
    seed: int
    #: of CPU, for a seed of the simulation; of the storm, for a soak
    seconds: float
    when: str
    #: the kind of anomaly and a text; the first of many
    findings: list[tuple[str, str]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


class Nights:
    """The folder with the results of all nights."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "done.jsonl"
        if self._file.exists() and not self._file.read_bytes().endswith(b"\n"):
            with self._file.open("a") as file:  # a kill has cut the last line short
                file.write("\n")

    def done(self) -> Iterator[Done]:
        """Yield all results. Ignore a line that a kill has left incomplete."""
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        for line in lines:
            with suppress(ValueError, TypeError):
                yield Done(**json.loads(line))

    def add(self, done: Done) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(asdict(done)) + "\n")

    def next_turn(self, kinds: Sequence[Kind]) -> tuple[Kind, int]:
        """Return the kind that should run next, by the weights of the kinds, and its first seed without a
        result.
        """
        counts: Counter[str] = Counter()
        last: dict[str, int] = {}
        for done in self.done():
            counts[done.kind] += 1
            last[done.kind] = max(done.seed, last.get(done.kind, 0))
        kind = min(kinds, key=lambda kind: counts[kind.name] / kind.weight)
        return kind, last.get(kind.name, kind.first - 1) + 1


def copied(folder: Path) -> tuple[str, Path]:
    """Copy the code of the current commit, unless there is a copy already. Return the commit's hash and the
    folder.
    """
    commit = _git("rev-parse", "--short=10", "HEAD").decode().strip()
    if _git("status", "--porcelain", "--untracked-files=no"):
        print("what is not committed is left out", file=sys.stderr)
    code = folder / "code" / commit
    if not code.exists():
        partial = code.with_suffix(".partial")
        with tarfile.open(fileobj=io.BytesIO(_git("archive", commit, *_CODE))) as archive:
            archive.extractall(partial, filter="data")
        partial.rename(code)
    return commit, code


def _git(*arguments: str) -> bytes:
    """Return the output of a git command. Exits with git's error, for example if this is not a checkout."""
    try:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True).stdout
    except subprocess.CalledProcessError as error:
        raise SystemExit(
            f"a night runs a commit of a git checkout: {error.stderr.decode().strip()}"
        ) from None


def run(nights: Nights, kinds: Sequence[Kind], minutes: float | None) -> int:
    """Run seeds until the time is up. Return the number of seeds and soaks with findings."""
    commit, code = copied(nights.folder)
    deadline = time.monotonic() + 60 * minutes if minutes is not None else float("inf")
    found = 0
    while True:
        kind, seed = nights.next_turn(kinds)
        with closing(_turn(kind, seed, commit, code)) as turn:
            for done in turn:
                nights.add(done)
                if done.findings:
                    found += 1
                    print(f"{kind.name}, seed {done.seed}: {_kinds([done])}", flush=True)
                if time.monotonic() > deadline:
                    return found


def _turn(kind: Kind, seed: int, commit: str, code: Path) -> Generator[Done, None, None]:
    """Run one process. Yield each result when the process prints it."""
    environment = {**os.environ, **environment_that_ends(), "PYTHONPATH": f"{code / 'src'}{os.pathsep}{code}"}
    command = [sys.executable, "-m", *kind.command(seed)]
    said = 0
    with subprocess.Popen(command, cwd=code, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if not line.startswith("{"):
                    continue
                said += 1
                outcome = json.loads(line)
                outcome["findings"] = outcome["findings"][:_KEPT]
                yield Done(commit=commit, kind=kind.name, when=time.strftime("%Y-%m-%d"), **outcome)
        except BaseException:
            process.kill()
            raise
    if not said:  # else the same would begin over and over
        raise SystemExit(f"{' '.join(command)} ended without an outcome, with the code {process.returncode}")


def report(nights: Nights) -> str:
    """Return a table: for each commit, the number of seeds of each kind and their findings."""
    rows: dict[tuple[str, str], list[Done]] = {}
    for done in nights.done():
        rows.setdefault((done.commit, done.kind), []).append(done)
    lines = ["| when | commit | what | seeds | hours | with findings |", "|---|---|---|---|---|---|"]
    for (commit, kind), all_done in rows.items():
        seeds = sorted(done.seed for done in all_done)
        when = all_done[0].when if all_done[0].when == all_done[-1].when else f"{all_done[0].when} on"
        hours = sum(done.seconds for done in all_done) / 3600
        failed = [done for done in all_done if done.findings]
        which = f"{len(failed)}: {_kinds(failed)}; seeds {', '.join(str(done.seed) for done in failed)}"
        lines.append(
            f"| {when} | {commit} | {kind} | {len(seeds):,}: {seeds[0]} to {seeds[-1]} | {hours:.2f} "
            f"| {which if failed else 'none'} |"
        )
    totals: dict[str, list[Done]] = {}
    for (_, kind), all_done in rows.items():
        totals.setdefault(kind, []).extend(all_done)
    for kind, all_done in totals.items():
        hours = sum(done.seconds for done in all_done) / 3600
        found = sum(bool(done.findings) for done in all_done)
        lines.append(f"| all | | {kind} | {len(all_done):,} | {hours:.2f} | {found} |")
    return "\n".join(lines)


def _kinds(failed: Iterable[Done]) -> str:
    counts = Counter(kind for done in failed for kind in dict.fromkeys(kind for kind, _ in done.findings))
    return ", ".join(f"`{kind}` {count}" for kind, count in counts.most_common())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.night", description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=ROOT / ".night", help="(%(default)s)")
    parser.add_argument("--minutes", type=float, help="stop after this time (default: when it is told to)")
    parser.add_argument("--soaks", action="store_true", help="run real clusters in turn with the simulation")
    parser.add_argument("--report", action="store_true", help="only print what was done until now")
    options = parser.parse_args()
    nights = Nights(options.folder)
    found = 0
    if not options.report:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
        os.nice(_LOWEST_PRIORITY)
        with suppress(KeyboardInterrupt):
            found = run(nights, (*SEEDS, SOAKS) if options.soaks else SEEDS, options.minutes)
    print(report(nights))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
