"""Writes docs/development/seams.md, the table of features that meet, from seams.toml beside it.

python tools/seams.py            write the page
python tools/seams.py --check    exit with 1 if the page is out of date

Each pair of features names the scenarios that try it, or says why it needs none. A scenario is one of

    integration/test_restart.py::test_name    a test, below tests/
    soak: kill a leader, transact             a fault of the soak, and what its clients do meanwhile
    simulation: cut, Transact                 functions or classes of the simulation

A name that does not exist is an error, so a test that is renamed or deleted leaves no false claim behind.
"""

from __future__ import annotations

import ast
import itertools
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "docs/development/seams.toml"
PAGE = ROOT / "docs/development/seams.md"
_MARK = "<!-- Generated from seams.toml by `make docs`: change that file, not this page. -->\n"
_INTRODUCTION = """
# Seams: where two features meet

Each serious defect so far was in a place where two features meet, although each feature had its own tests.
This table has every pair of features that keep or move state. A number is the number of scenarios that test
the pair. `no` means that the pair needs no scenario of its own: the two features cannot meet, or other tests
cover the pair. `open` means that no scenario tests the pair yet. The lists below have the scenarios of each
pair, or the reason for `no`. `make check` fails when a scenario does not exist.

A scenario is a test in `tests/`. After `soak:` and `simulation:`, it is a set of faults and clients that meet
in one run. A reason can name another pair by the keys of its features in `seams.toml`, for example
`restart x cut`. The `cluster` tests are those in `tests/integration/cluster`.

For each new feature, find the features that it meets, and add the pairs to `seams.toml`.
"""


class Seam(NamedTuple):
    """A pair of features, with its scenarios or the reason why it needs none."""

    scenarios: Sequence[str] = ()
    #: why the pair needs no scenario of its own
    reason: str = ""

    @property
    def cell(self) -> str:
        return "no" if self.reason else str(len(self.scenarios)) if self.scenarios else "open"


class SeamsError(Exception):
    """`seams.toml` names something that does not exist. The text says what it is."""


def page() -> str:
    """Return the present contents of the page.

    Raises:
        SeamsError: a feature, a pair or a scenario is wrong.
    """
    source = tomllib.loads(SOURCE.read_text(encoding="utf-8"))
    features: Mapping[str, str] = source["features"]
    seams = _seams(features, source["seams"])
    return "".join([_MARK, _INTRODUCTION, _table(features, seams), *_lists(features, seams)])


def _seams(features: Mapping[str, str], given: Mapping[str, str | list[str]]) -> dict[frozenset[str], Seam]:
    found = {frozenset(pair): Seam() for pair in itertools.combinations(features, 2)}
    for key, value in given.items():
        pair = frozenset(key.split(" x "))
        if pair not in found:
            raise SeamsError(f"{key}: no pair of two features")
        if found[pair] != Seam():
            raise SeamsError(f"{key} is there twice")
        if isinstance(value, str):
            found[pair] = Seam(reason=value)
            continue
        for scenario in value:
            _check(key, scenario)
        found[pair] = Seam(scenarios=value)
    return found


def _table(features: Mapping[str, str], seams: Mapping[frozenset[str], Seam]) -> str:
    names = list(features)
    lines = [
        f"| | {' | '.join(map(str, range(1, len(names))))} |",
        f"|---|{'---|' * (len(names) - 1)}",
    ]
    for row, name in enumerate(names[1:], 1):
        cells = [seams[frozenset((name, other))].cell for other in names[:row]]
        cells += [""] * (len(names) - 1 - row)
        lines.append(f"| {row + 1} {features[name]} | {' | '.join(cells)} |")
    return (
        f"\nThe columns have the numbers of the rows. Number 1 is {features[names[0]]}.\n\n"
        + "\n".join(lines)
        + "\n"
    )


def _lists(features: Mapping[str, str], seams: Mapping[frozenset[str], Seam]) -> Iterator[str]:
    for number, (name, title) in enumerate(features.items(), 1):
        later = list(features)[number:]
        if later:
            yield f"\n## {number} {title}\n\n"
        for other in later:
            seam = seams[frozenset((name, other))]
            told = seam.reason or ", ".join(f"`{scenario}`" for scenario in seam.scenarios) or "open"
            yield f"- **{features[other]}**: {told}\n"


def _check(key: str, scenario: str) -> None:
    kind, _, names = scenario.partition(": ")
    if kind == "soak" and names:
        known = _soak_names()
        unknown = [name for name in names.split(", ") if name not in known]
    elif kind == "simulation" and names:
        known = _defined(*sorted((ROOT / "soak/simulated").glob("*.py")))
        unknown = [name for name in names.split(", ") if name not in known]
    else:
        path, _, test = scenario.partition("::")
        file = ROOT / "tests" / path
        unknown = [] if file.is_file() and test in _defined(file) else [scenario]
    if unknown:
        raise SeamsError(f"{key}: there is no {', '.join(unknown)}")


@cache
def _defined(*files: Path) -> frozenset[str]:
    """Return the names of the functions, methods and classes in these files."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    return frozenset(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, kinds))


@cache
def _soak_names() -> frozenset[str]:
    """Return the names of the soak's faults and of its clients' roles."""
    sys.path.insert(0, str(ROOT))
    from soak.cluster_nemesis import KINDS, MOVES
    from soak.plan import TOPICS, slots

    roles = {slot.role for slot in slots(has_java=True, has_consumer_protocol=True)}
    return frozenset((*KINDS, MOVES, *roles, *TOPICS))


def main() -> int:
    try:
        wanted = page()
    except SeamsError as error:
        print(f"{SOURCE.relative_to(ROOT)}: {error}", file=sys.stderr)
        return 1
    is_stale = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != wanted
    if is_stale and "--check" in sys.argv:
        print(f"out of date: {PAGE.name}; run `make docs`", file=sys.stderr)
        return 1
    if is_stale:
        PAGE.write_text(wanted, encoding="utf-8")
        print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
