"""Runs every code block of the pages for users, from a page's top to its end."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
import yaml
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
    (
        "docs/use/cluster.md",
        "barnabas start --listen 0.0.0.0:9092 --set node.id=1 --set broker.rack=a \\",
    ): "needs several machines",
    (
        "docs/use/cluster.md",
        "barnabas cluster import barnabas-data --zookeeper zk1:2181,zk2:2181,zk3:2181/prod",
    ): "needs an ensemble; tests/integration/test_zookeeper.py imports into one",
    ("docs/use/cluster.md", "barnabas brokers drain 4"): (
        "needs a fourth broker; tests/integration/cluster/test_moves.py drains one, and "
        "tests/integration/test_unregister_broker.py unregisters one"
    ),
    ("docs/use/damage.md", "barnabas log check broker-2"): "tests/integration/cluster/test_damage_page.py",
    ("docs/use/damage.md", "barnabas log repair broker-2 --dry-run"): "the same",
    ("docs/use/damage.md", "barnabas topics elect orders:0 --unclean"): "the same",
    (
        "docs/use/console.md",
        "pip install '.[console]'      # in a checkout of Barnabas",
    ): "tests/integration/cli/test_cli_console.py",
    (
        "docs/use/console.md",
        "barnabas console --bootstrap-server kafka-1:9092 --registry http://127.0.0.1:8081",
    ): "needs a cluster of that name",
    (
        "docs/use/cluster.md",
        "barnabas cluster backup shop.backup --zookeeper zk1:2181,zk2:2181/prod",
    ): "needs an ensemble; tests/integration/cli/test_cli_backup.py does it without",
    (
        "docs/use/cluster.md",
        "barnabas cluster restore /data/broker-1 /data/broker-2 /data/broker-3 --zookeeper zk1:2181/prod",
    ): "needs an ensemble; tests/integration/cluster/test_lost_metadata.py plays it",
    ("docs/use/registry.md", "barnabas tls init --folder tls"): (
        "needs a cluster with logins; tests/integration/registry/test_secured.py has one"
    ),
    ("docs/use/registry.md", "client = SchemaRegistryClient({"): "the same",
    ("docs/use/deployment.md", "python3 -m venv /opt/barnabas"): "installs a service of systemd, as root",
    ("docs/use/deployment.md", "docker build -t barnabas ."): "needs a container engine",
    (
        "docs/use/pipelines.md",
        "barnabas pipeline list               # all pipelines of the cluster, wherever they run",
    ): "tests/spark/test_status_topic.py lists some",
    (
        "docs/use/pipelines.md",
        '@sink(iceberg="lake.shop.sales", options={"type": "rest", "uri": "http://catalog.example:8181"})',
    ): "needs a catalog; tests/spark/test_iceberg_sink.py has one of SQL",
    (
        "docs/use/pipelines.md",
        '@sink(jdbc="jdbc:mariadb://db.example/shop", table="sales", key="minute,item", '
        'mode="update", user="shop")',
    ): "needs a database; tests/spark/test_jdbc_sink.py has Derby",
    ("docs/use/pipelines.md", "def test_dear_orders(barnabas_pipeline):"): (
        "tests/spark/test_pipelines_under_test.py does the same on the session of the other tests"
    ),
    (
        "docs/use/pipelines.md",
        "export SPARK_HOME=$(python -c 'import pyspark; print(pyspark.__path__[0])')   # on every machine",
    ): "needs several machines; tests/spark/test_cluster.py has a cluster of processes",
    (
        "docs/reference/performance.md",
        "make bench                                     # about an hour, all of it",
    ): "measures for an hour",
    (
        "docs/reference/performance.md",
        "python -m bench.machine --brokers 1,2,4,8 --kafka",
    ): "measures Apache Kafka",
}

#: Pages whose commands a test of their own plays, with programs that run beside each other.
PLAYED_ELSEWHERE = {
    "examples/log_monitoring/README.md": "tests/examples/test_log_monitoring.py",
    "examples/one_time_password/README.md": "tests/examples/test_one_time_password.py",
    "examples/payments/README.md": "tests/examples/test_payments.py",
    "examples/thumbnails/README.md": "tests/examples/test_thumbnails.py",
}

#: Pages that begin where another has started a broker.
WITH_BROKER = {"docs/use/cli.md", "docs/use/damage.md", "docs/use/queues.md"}


def runs(block: Block) -> bool:
    return block.name not in NOT_RUN and block.page not in PLAYED_ELSEWHERE and block.language != "text"


def pages_with_blocks() -> list[pytest.param]:
    params = []
    for page in FOLLOWED:
        blocks = [block for block in blocks_of(page) if runs(block)]
        if blocks:
            spark = any("pyspark" in block.text or "pipeline run" in block.text for block in blocks)
            marks = [pytest.mark.spark] if spark else []
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
    monkeypatch.setattr("barnabas.cli.client_config.read_servers", lambda given, default, *_, **__: default)
    for block in blocks_of(page):
        assert block.language in LANGUAGES, f"line {block.line}"
        if block.language == "python":
            compile(block.text, block.page, "exec")
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "yaml":
            yaml.safe_load(block.text)
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
