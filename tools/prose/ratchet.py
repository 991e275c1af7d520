"""Counts the findings of each file, and compares them with the number that `allowed.txt` permits.

A permitted number can only fall. A file that is not in the list may have no finding. `--write` lowers the
numbers. If files were renamed, the new files take over the permitted numbers of the old ones.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from proselint.tools import LintFile
from tools.prose import rules
from tools.prose.texts import DOCSTRING, prose

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = Path(__file__).with_name("allowed.txt")
#: the pages, and the code whose docstrings are read
PLACES = ("*.md", "docs/**/*.md", "examples/**/*.md", ".github/**/*.md", "src/**/*.py")
GENERATED = "<!-- Generated from"


class Finding(NamedTuple):
    line: int
    rule: str
    message: str


def findings(path: Path) -> list[Finding]:
    """Return the findings of the rules in a file, by line."""
    rules.register()
    text = prose(path)
    if not text.strip():
        return []
    results = LintFile(path.name, text).lint(rules.CONFIG)
    return [
        Finding(result.pos[0], result.check_result.check_path, " ".join(result.check_result.message.split()))
        for result in results
    ]


def files() -> Iterator[Path]:
    """Yield the files whose prose is written by hand."""
    for path in sorted(path for place in PLACES for path in ROOT.glob(place)):
        if path.suffix == ".py" or not path.read_text(encoding="utf-8").startswith(GENERATED):
            yield path


def read_allowed() -> dict[str, int]:
    """Return the permitted number of findings by file."""
    lines = ALLOWED.read_text(encoding="utf-8").splitlines() if ALLOWED.exists() else []
    return {name: int(count) for count, name in (line.split(maxsplit=1) for line in lines)}


def excess(counted: Mapping[str, int], allowed: Mapping[str, int]) -> dict[str, int]:
    """Return the files that have more findings than permitted, with the excess of each."""
    return {name: more for name, count in counted.items() if (more := count - allowed.get(name, 0)) > 0}


def lowered(counted: Mapping[str, int], allowed: Mapping[str, int]) -> dict[str, int]:
    """Return the new list. Raises ValueError if a number would rise."""
    above = excess(counted, allowed)
    risen = sorted(above.keys() & allowed.keys())
    free = sum(count for name, count in allowed.items() if name not in counted)
    if risen or sum(above.values()) > free:
        raise ValueError(f"more findings than permitted in {', '.join(risen or sorted(above))}")
    return {name: count for name, count in counted.items() if count}


def share(found: Mapping[str, Sequence[Finding]]) -> str:
    """Return how many docstrings open with a relative clause; the aim is 3 %."""
    openings = sum(finding.rule == "barnabas.docstring" for each in found.values() for finding in each)
    docstrings = sum(prose(ROOT / name).count(DOCSTRING) for name in found if name.endswith(".py"))
    return f"{openings} of {docstrings} docstrings ({openings / docstrings:.1%}) open with a relative clause"


def main(arguments: Sequence[str]) -> int:
    """Run the command. Return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.prose")
    parser.add_argument("--write", action="store_true", help="lower the permitted numbers")
    parser.add_argument("--docstrings", action="store_true", help="print the share of bad openings")
    parser.add_argument("files", nargs="*", type=Path, help="print all findings of these files")
    options = parser.parse_args(arguments)
    if options.files:
        return _print(options.files)
    found = {path.relative_to(ROOT).as_posix(): findings(path) for path in files()}
    counted = {name: len(each) for name, each in found.items()}
    if options.docstrings:
        print(share(found))
        return 0
    if options.write:
        try:
            allowed = lowered(counted, read_allowed())
        except ValueError as error:
            sys.exit(str(error))
        ALLOWED.write_text(
            "".join(f"{count} {name}\n" for name, count in sorted(allowed.items())), encoding="utf-8"
        )
        return 0
    above = excess(counted, read_allowed())
    for name, more in above.items():
        print(f"{name}: {more} more than permitted, among:", file=sys.stderr)
        for line, rule, message in found[name]:
            print(f"  {name}:{line}: {rule}: {message}", file=sys.stderr)
    return 1 if above else 0


def _print(paths: Sequence[Path]) -> int:
    for path in paths:
        for line, rule, message in findings(path):
            print(f"{path}:{line}: {rule}: {message}")
    return 0
