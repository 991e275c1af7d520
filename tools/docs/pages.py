"""Writes the pages and drawings that are generated from the code, so that they agree with it.

python -m tools.docs            write them into docs/reference/
python -m tools.docs --check    exit with 1 if one of them is out of date
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.docs.metrics_page import metrics_reference
from tools.docs.pipelines_page import pipeline_reference
from tools.docs.plan import broker_drawing, packages_drawing, server_drawing
from tools.docs.protocol_page import protocol_reference
from tools.docs.settings_page import configuration_reference
from tools.docs.spark_page import spark_reference

from barnabas.cli.reference import cli_reference

DOCUMENTS: dict[str, Callable[[], str]] = {
    "cli.md": cli_reference,
    "configuration.md": configuration_reference,
    "metrics.md": metrics_reference,
    "pipeline-options.md": pipeline_reference,
    "protocol.md": protocol_reference,
    "spark.md": spark_reference,
    "packages.svg": packages_drawing,
    "broker.svg": broker_drawing,
    "server.svg": server_drawing,
}

_MARK = "<!-- Generated from the code by `make docs`: change the code, not this page. -->\n\n"


def render(name: str) -> str:
    """Return the present contents of one page or drawing."""
    return _MARK + DOCUMENTS[name]()


def stale(folder: Path) -> list[str]:
    """Return the names of the pages and drawings in `folder` that are missing or out of date."""
    return [name for name in DOCUMENTS if _read(folder / name) != render(name)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description="Write the generated docs.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if any is stale")
    parser.add_argument(
        "--folder", type=Path, default=Path("docs/reference"), help="their folder [default: %(default)s]"
    )
    options = parser.parse_args(arguments)
    names = stale(options.folder)
    if options.check and names:
        print(f"out of date: {', '.join(names)}; run `make docs`", file=sys.stderr)
        return 1
    for name in names:
        (options.folder / name).write_text(render(name), encoding="utf-8")
        print(f"wrote {options.folder / name}")
    return 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None
