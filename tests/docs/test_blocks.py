"""Every code block of the pages for users runs as a reader would run it, from a page's top to its end."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from tests.docs.blocks import LANGUAGES, Block, Reader, blocks_of
from tests.docs.pages import PAGES, ROOT, place
from tests.unit.cli.commands import calls_in, parse

#: Pages for users; blocks of other pages are only read.
FOLLOWED = [
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    *sorted((ROOT / "docs" / "use").glob("*.md")),
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
    *sorted((ROOT / "examples").rglob("README.md")),
]

#: Blocks that do not run, by page and first line, and why. Their calls of `barnabas` are still parsed.
NOT_RUN = {
    ("docs/use/deployment.md", "python3 -m venv /opt/barnabas"): "installs a service of systemd, as root",
    ("docs/use/deployment.md", "docker build -t barnabas ."): "needs a container engine",
    (
        "docs/use/pipelines.md",
        "export SPARK_HOME=$(python -c 'import pyspark; print(pyspark.__path__[0])')   # on every machine",
    ): "needs several machines; tests/spark/test_cluster.py has a cluster of processes",
    (
        "docs/reference/performance.md",
        "make bench                                     # about 40 minutes, all of it",
    ): ("measures for 40 minutes"),
}

#: Pages whose commands a test of their own plays, with programs that run beside each other.
PLAYED_ELSEWHERE = {
    "examples/log_monitoring/README.md": "tests/examples/test_log_monitoring.py",
    "examples/one_time_password/README.md": "tests/examples/test_one_time_password.py",
    "examples/payments/README.md": "tests/examples/test_payments.py",
}

#: Pages that begin where another has started a broker.
WITH_BROKER = {"docs/use/cli.md", "docs/use/damage.md"}


def runs(block: Block) -> bool:
    return block.name not in NOT_RUN and block.page not in PLAYED_ELSEWHERE and block.language != "text"


def pages_with_blocks() -> list[pytest.param]:
    params = []
    for page in FOLLOWED:
        blocks = [block for block in blocks_of(page) if runs(block)]
        if blocks:
            spark = any("pyspark" in block.text or "pipeline run" in block.text for block in blocks)
            marks = [pytest.mark.spark, pytest.mark.xdist_group("spark")] if spark else []
            params.append(pytest.param(blocks, id=place(page), marks=[*marks, pytest.mark.timeout(1800)]))
    return params


@pytest.mark.parametrize("blocks", pages_with_blocks())
def test_every_block_of_a_page_runs_in_order(blocks: list[Block], tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    try:
        if blocks[0].page in WITH_BROKER:
            reader.start_broker()
        for block in blocks:
            reader.follow(block)
        reader.finish()
    finally:
        reader.close()


@pytest.mark.parametrize("page", PAGES, ids=place)
def test_every_block_has_a_language_and_can_be_read(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(click.Path, "convert", lambda kind, value, parameter, context: value)  # files exist
    for block in blocks_of(page):
        assert block.language in LANGUAGES, f"line {block.line}"
        if block.language == "python":
            compile(block.text, block.page, "exec")
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "sh" and not runs(block):
            for line in block.text.replace("\\\n", " ").splitlines():
                for call in calls_in(line):
                    parse(call)


def test_the_list_of_blocks_that_do_not_run_is_true() -> None:
    names = {block.name for page in FOLLOWED for block in blocks_of(page)}
    assert NOT_RUN.keys() <= names
    assert PLAYED_ELSEWHERE.keys() <= {page for page, _ in names}
    for test in PLAYED_ELSEWHERE.values():
        assert (ROOT / test).exists()
