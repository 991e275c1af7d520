"""`make test` leaves out only slow tests: every package and every client keeps a test."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from tests.slow import FAST, SLOW, in_turn, is_left_out, is_slow

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
#: Those of the first three levels: `barnabas.broker.storage`, for example.
PACKAGES = [
    ".".join(path.parent.relative_to(SOURCE).parts)
    for path in sorted(SOURCE.rglob("__init__.py"))
    if len(path.relative_to(SOURCE).parts) <= 4
]
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
CLIENTS = ["confluent_kafka", "kafka", "aiokafka", "confluent_kafka.schema_registry"]
PLACES = [
    "docs",
    "integration/cli",
    "integration/cluster",
    "integration/console",
    "property",
    "simulation",
    "spark",
]


@cache
def kept(under: str = "tests") -> str:
    """Return the text of all test files below a folder that `make test` imports."""
    return "\n".join(
        file.read_text() for file in TESTS if file.is_relative_to(ROOT / under) and not is_left_out(file)
    )


@pytest.mark.parametrize("path", [*SLOW, *FAST])
def test_each_listed_path_exists(path: str) -> None:
    file, _, test = path.partition("::")
    assert (ROOT / file).exists()
    assert not test or f"def {test.partition('[')[0]}(" in (ROOT / file).read_text()


def test_pytest_finds_each_fast_test_with_its_parameters() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *FAST]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_has_a_fast_test(package: str) -> None:
    """A test of the package imports it or has its name. Commands are tested by their names."""
    name = package.rpartition(".")[2]
    named = [file for file in TESTS if file.stem in (f"test_{name}", f"test_cli_{name}")]
    is_imported = re.search(rf"\b{re.escape(package)}\b", kept())
    assert is_imported or any(not is_left_out(file) for file in named)


@pytest.mark.parametrize("place", PLACES)
def test_each_kind_of_test_has_a_fast_one(place: str) -> None:
    assert kept(f"tests/{place}")


@pytest.mark.parametrize("client", CLIENTS)
def test_each_client_has_a_fast_test(client: str) -> None:
    assert re.search(rf"^ *(from|import) {re.escape(client)}\b", kept("tests/integration"), re.MULTILINE)


def test_the_longest_path_that_fits_decides() -> None:
    assert is_slow("tests/spark/test_writer.py::test_a_row")
    assert not is_slow(f"{FAST[-1]}")
    assert is_slow(f"{FAST[-1]}_of_two_topics")
    assert not is_slow("tests/integration/test_fetch.py::test_a_record")


def test_a_file_is_imported_only_if_a_fast_test_may_be_in_it() -> None:
    assert is_left_out(ROOT / "tests" / "spark" / "test_writer.py")
    assert not is_left_out(ROOT / "tests" / "spark")
    assert not is_left_out(ROOT / FAST[-1].partition("::")[0])
    assert is_left_out(ROOT / "tests" / "examples")
    assert not is_left_out(ROOT / "tests" / "integration" / "test_fetch.py")
    assert not is_left_out(Path("/elsewhere/tests/spark/test_writer.py"))


def test_a_sample_goes_through_the_values_in_turn() -> None:
    assert in_turn("abc", 2, 5) == ["c", "a", "b", "c", "a"]
