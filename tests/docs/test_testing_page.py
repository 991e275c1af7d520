"""The page about testing: each of its Python blocks runs as a reader would run it."""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PAGE = Path(__file__).parents[2] / "docs" / "use" / "testing.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_every_block_of_the_page_passes_as_a_test(pytester: pytest.Pytester) -> None:
    tests = [block for block in BLOCKS if "def test_" in block]
    configuration = [block for block in BLOCKS if block.startswith("# conftest.py")]
    assert len(tests) + len(configuration) == len(BLOCKS) > 4
    pytester.makeconftest("\n".join(configuration))
    pytester.makepyfile(**{f"test_block_{number}": block for number, block in enumerate(tests)})
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=len(tests))
