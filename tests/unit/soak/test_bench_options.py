"""The options of `python -m bench`."""

from __future__ import annotations

import pytest
from bench.__main__ import parse


@pytest.mark.parametrize("only", ["scale, 10,000p", "synchronous", "spark read", "cluster", "cluster total"])
def test_workloads_are_chosen_by_a_part_of_their_names(only):
    assert parse(["--only", only]).only == only


@pytest.mark.parametrize(
    ("only", "arguments"), [("scale, 10,000p", ["--quick"]), ("nonsense", []), ("cluster nonsense", [])]
)
def test_a_choice_of_nothing_is_refused_with_the_names_that_there_are(capsys, only, arguments):
    with pytest.raises(SystemExit):
        parse([*arguments, "--only", only])
    said = capsys.readouterr().err
    assert f"--only {only!r} is part of none of these names" in said
    assert "synchronous produce" in said
    assert "cluster total" in said
    assert ("without --quick there are more" in said) == bool(arguments)
