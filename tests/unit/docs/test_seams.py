"""The table of features that meet names scenarios that exist."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

FEATURES = {"a": "one", "b": "another", "c": "a third"}


@pytest.fixture(scope="module")
def seams():
    path = Path(__file__).parents[3] / "tools/seams.py"
    spec = importlib.util.spec_from_file_location("seams", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "scenario",
    [
        "unit/docs/test_seams.py::test_that_was_renamed",
        "unit/docs/test_that_was_deleted.py::test_a",
        "soak: kill a leader, sleep",
        "simulation: _earthquake",
    ],
)
def test_a_scenario_that_does_not_exist_is_refused(seams, scenario):
    with pytest.raises(seams.SeamsError, match="a x b: there is no "):
        seams._seams(FEATURES, {"a x b": [scenario]})


@pytest.mark.parametrize("key", ["a x a", "a x d", "a"])
def test_a_pair_that_there_is_not_is_refused(seams, key):
    with pytest.raises(seams.SeamsError, match="no pair"):
        seams._seams(FEATURES, {key: "never"})


def test_a_pair_counts_its_scenarios_or_has_a_reason_or_is_open(seams):
    own = "unit/docs/test_seams.py::test_a_pair_that_there_is_not_is_refused"
    given = {"b x a": [own, "soak: kill a leader, transact"], "a x c": "they never meet"}
    found = seams._seams(FEATURES, given)
    cells = {"".join(sorted(pair)): seam.cell for pair, seam in found.items()}
    assert cells == {"ab": "2", "ac": "no", "bc": "open"}


def test_the_page_is_up_to_date(seams):
    assert seams.PAGE.read_text(encoding="utf-8") == seams.page()
