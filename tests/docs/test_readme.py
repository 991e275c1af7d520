"""The README's Python: its blocks run, or at least compile, as a reader would take them over."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.testing import BarnabasBroker

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = PYTHON.findall(README)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def block_with(words):
    (block,) = [block for block in BLOCKS if words in block]
    return block


def run(code, cwd):
    outcome = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, cwd=cwd, timeout=120
    )
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


def test_its_pytest_test_passes(tmp_path):
    (tmp_path / "test_readme.py").write_text(
        "import confluent_kafka\n"
        "from barnabas.testing.cluster import Cluster\n"
        "class my_app:\n"
        "    def read_orders(servers, topic):\n"
        "        return [record.value.decode() for record in Cluster(servers).consume(topic, 1)]\n"
        + block_with("def test_orders")
    )
    outcome = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert outcome.returncode == 0, outcome.stdout


def test_its_broker_outside_pytest_runs(tmp_path):
    (statement,) = re.findall(r"`(with barnabas\.testing.*?): \.\.\.`", README)
    out = run(f"import barnabas\n{statement}:\n    print(broker.bootstrap_servers)", tmp_path)
    assert out.startswith("127.0.0.1:")


def test_its_producer_and_consumer_run(tmp_path):
    block = block_with("KafkaProducer")
    with BarnabasBroker() as broker:
        out = run(block.replace("127.0.0.1:9092", broker.bootstrap_servers), tmp_path)
    assert out == "0 0 b'customer-7' b'two apples'\n"


def test_importing_barnabas_imports_nothing_else():
    before = "import __future__, sys, typing; before = set(sys.modules)"
    code = f"{before}; import barnabas; print(*set(sys.modules) - before)"
    assert run(code, ROOT).split() == ["barnabas"]


@pytest.mark.parametrize("name", ["client", "testing", "pipelines"])
def test_a_package_for_users_is_there_without_an_import_of_its_own(name):
    assert run(f"import barnabas; print(barnabas.{name}.__name__)", ROOT) == f"barnabas.{name}\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_python_compiles(page):
    for block in PYTHON.findall(page.read_text(encoding="utf-8")):
        compile(block, page.name, "exec")
