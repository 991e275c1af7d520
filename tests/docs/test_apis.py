"""Each API has one name for its message and its handler, and tests of its request (docs/architecture.md)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BARNABAS = ROOT / "src" / "barnabas"


def names_in(folder: str) -> set[str]:
    return {path.stem for path in (BARNABAS / folder).glob("*.py")} - {"__init__"}


def test_each_handler_has_a_message_of_its_name_and_each_message_a_handler():
    assert names_in("broker/server/handlers") == names_in("kafka/protocol/messages")


@pytest.fixture(scope="module")
def words_of_tests() -> set[str]:
    """Return all names in the tests that run by default."""
    paths = (path for path in (ROOT / "tests").rglob("*.py") if "compat" not in path.parts)
    return {word for path in paths for word in re.findall(r"\w+Request\b", path.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("api", sorted(names_in("kafka/protocol/messages")))
def test_each_request_is_sent_by_a_test(api, words_of_tests):
    source = (BARNABAS / "kafka" / "protocol" / "messages" / f"{api}.py").read_text(encoding="utf-8")
    requests = re.findall(r"^class (\w+Request)\(Request, key=", source, re.MULTILINE)
    assert requests
    assert [name for name in requests if name not in words_of_tests] == []
