"""The prose linter separates prose from code, finds broken rules, and never permits more findings."""

from __future__ import annotations

from pathlib import Path

import pytest

# `make check` runs the linter itself, and fails without proselint
ratchet = pytest.importorskip("tools.prose.ratchet", reason="proselint is missing: run `make setup`")

LONGEST = 25
LONG = " ".join(["word"] * (LONGEST + 1))


@pytest.fixture
def found(tmp_path: Path):
    """Return the findings in a text: (line, rule without `barnabas.`)."""

    def find(text: str, name: str = "page.md") -> list[tuple[int, str]]:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return [(line, rule.removeprefix("barnabas.")) for line, rule, _ in ratchet.findings(path)]

    return find


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (f"{LONG}.", "length"),
        (f"Short one. {LONG}.", "length"),
        (f"{LONG[:60]} PKCS#12 {LONG[60:]}", "length"),
        (f"- {LONG}", "length"),
        (f"| a | b |\n|---|---|\n| x | {LONG} |", "length"),
        ("The log is cut. What follows is lost.", "opening"),
        ("`--set` goes before it.", "words"),
        ("Nobody reads it.", "words"),
        ("The log is copied by followers.", "passive"),
        ("The folder is where logs are.", "inverted"),
    ],
)
def test_a_page_with_a_sentence_that_breaks_a_rule(found, text: str, rule: str) -> None:
    assert [each for _, each in found(text)] == [rule]


@pytest.mark.parametrize(
    "text",
    [
        f"```text\n{LONG}\n```",
        f"`{LONG}` is code.",
        f"{' '.join(LONG.split()[1:])}.",
        f"{' '.join(LONG.split()[:13])}. {' '.join(LONG.split()[:13])}.",
        "\n".join(f"- {' '.join(LONG.split()[:13])}" for _ in range(2)),
        f"| a |\n|---|\n| {'; '.join(LONG.split())} |",
        "# What a consumer sees",
        "The store is PKCS#12. What now?",
        "What now? Continue.",
        "| a | b |\n|---|---|\n" + "| two | words |\n" * LONGEST,
    ],
)
def test_a_page_that_keeps_the_rules(found, text: str) -> None:
    assert found(text) == []


def test_a_finding_has_the_line_of_its_source(found) -> None:
    assert found("# Title\n\nOne.\nNobody reads it.\n\n| a |\n|---|\n| nobody |\n") == [
        (4, "words"),
        (8, "words"),
    ]
    assert found('"""One."""\n\n\ndef f():\n    """What f does."""\n', "code.py") == [(5, "docstring")]


def test_of_python_only_the_prose_of_docstrings_is_read(found) -> None:
    code = f'''
"""Return one.

{LONG[:40]}

    {LONG}

Args:
    one: nobody
"""
name = "nobody {LONG}"  # nobody
'''
    assert found(code, "code.py") == [(9, "words")]


@pytest.mark.parametrize("opening", ["What it does.", "How to do it.", "So that it works.", "By topic."])
def test_a_docstring_opens_with_a_relative_clause(found, opening: str) -> None:
    assert found(f'"""{opening}"""', "code.py") == [(1, "docstring")]


@pytest.mark.parametrize("opening", ["Whether it works.", "Return what it does.", "Sorted names."])
def test_a_docstring_opens_with_a_verb_or_a_noun(found, opening: str) -> None:
    assert found(f'"""{opening}"""', "code.py") == []


def test_more_findings_than_permitted_are_an_excess() -> None:
    assert ratchet.excess({"old": 3, "good": 1, "new": 1}, {"old": 2, "good": 1}) == {"old": 1, "new": 1}


def test_a_permitted_number_falls_and_never_rises() -> None:
    assert ratchet.lowered({"a": 1, "b": 0}, {"a": 2, "b": 1}) == {"a": 1}
    with pytest.raises(ValueError, match="in a"):
        ratchet.lowered({"a": 2}, {"a": 1, "gone": 5})


def test_a_file_that_moves_takes_its_findings_along() -> None:
    assert ratchet.lowered({"there": 2}, {"here": 2}) == {"there": 2}
    with pytest.raises(ValueError, match="in there"):
        ratchet.lowered({"there": 3}, {"here": 2})


def test_the_command_fails_on_a_new_finding_until_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("Nobody reads it.")
    monkeypatch.setattr(ratchet, "ROOT", tmp_path)
    monkeypatch.setattr(ratchet, "ALLOWED", tmp_path / "allowed.txt")
    monkeypatch.setattr(ratchet, "files", lambda: [page])
    assert ratchet.main([]) == 1
    assert "page.md:1: barnabas.words: Nobody" in capsys.readouterr().err
    page.write_text("A reader reads it.")
    assert ratchet.main([]) == 0
