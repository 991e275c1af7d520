"""Writes docs/development/coverage.md: how many statements of each package the last `make coverage` ran.

python tools/coverage_page.py    read .coverage, write the page
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from coverage import Coverage

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/development/coverage.md"
_SOURCE = "src/barnabas/"
#: the number of modules that the page names as those of the lowest coverage; the least size of such a module
_NAMED, _LEAST = 10, 20
_INTRODUCTION = """# Coverage

`make coverage` runs the unit and property tests and writes this page. The figures are of {date},
commit {commit}. The tests in `integration`, `simulation`, `spark`, `docs` and `compat` run most of the other
statements. The page does not count these tests.

"""


class Counted(NamedTuple):
    """The statements of a module or a package, and how many of them ran."""

    statements: int
    ran: int

    @property
    def row(self) -> str:
        return f"{self.statements:,} | {100 * self.ran / max(self.statements, 1):.0f} % |"


def counted() -> dict[str, Counted]:
    """Return the modules by their paths below `src/barnabas`."""
    measured = Coverage(data_file=str(ROOT / ".coverage"), config_file=str(ROOT / "pyproject.toml"))
    measured.load()
    with tempfile.NamedTemporaryFile("w+", suffix=".json") as report:
        measured.json_report(outfile=report.name)
        files = json.load(report)["files"]
    return {
        path.partition(_SOURCE)[2]: Counted(found["num_statements"], found["covered_lines"])
        for path, found in ((path, file["summary"]) for path, file in files.items())
        if _SOURCE in path
    }


def package_of(path: str) -> str:
    """Return the package that the page counts a module in: the broker's are too large for one row."""
    parts = path.split("/")
    return "/".join(parts[: 2 if parts[0] == "broker" and len(parts) > 2 else 1])


def page(modules: dict[str, Counted], date: str, commit: str) -> str:
    packages: dict[str, list[Counted]] = defaultdict(list)
    for path, module in modules.items():
        packages[package_of(path)].append(module)
    rows = [
        f"| `{name}` | {Counted(sum(m.statements for m in each), sum(m.ran for m in each)).row}"
        for name, each in sorted(packages.items())
    ]
    whole = Counted(sum(m.statements for m in modules.values()), sum(m.ran for m in modules.values()))
    large = [(path, module) for path, module in modules.items() if module.statements >= _LEAST]
    least = sorted(large, key=lambda item: item[1].ran / item[1].statements)[:_NAMED]
    return "\n".join(
        [
            _INTRODUCTION.format(date=date, commit=commit) + "| package | statements | statements that ran |",
            "|---|--:|--:|",
            *rows,
            f"| all | {whole.row}",
            "",
            f"## The {_NAMED} modules with the lowest coverage",
            f"Only modules of {_LEAST} statements or more are in this table:",
            "",
            "| module | statements | statements that ran |",
            "|---|--:|--:|",
            *(f"| `{path}` | {module.row}" for path, module in least),
            "",
        ]
    )


def main() -> None:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    PAGE.write_text(page(counted(), datetime.now(UTC).date().isoformat(), commit))


if __name__ == "__main__":
    main()
