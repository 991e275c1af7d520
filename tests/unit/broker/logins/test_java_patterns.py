"""Patterns of mapping rules match the same texts as in Java (java.util.regex)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.logins.java_patterns import compile_java


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"\w+", "alice_1", True),
        (r"\w+", "älice", False),
        (r"\w+", "\u0430lice", False),  # the first letter is Cyrillic
        (r"\W+", "ä", True),
        (r"\d+", "123", True),
        (r"\d+", "\u0661\u0662\u0663", False),
        (r"\D+", "\u0661\u0662\u0663", True),
        (r"a\sb", "a b", True),
        (r"a\sb", "a\u00a0b", False),
        (r"(?i)kelvin", "KELVIN", True),
        (r"(?i)kelvin", "\u212aelvin", False),  # the sign of Kelvin
        (r"[\w.]+", "a.b", True),
        (r"[\w.]+", "ä.b", False),
        (r".*", "älice \u0661", True),
        (r".*", "a\u2028b", False),
        (r".*", "a\rb", False),
        (r".*", "a\x85b", False),
        (r"(?s).*", "a\u2028b\n", True),
        (r"a\.b", "a.b", True),
        (r"a\.b", "axb", False),
        (r"[.]", ".", True),
        (r"[.]", "x", False),
        (r"[].]", "]", True),
        (r"[].]", "x", False),
        (r"[^.]", ".", False),
        (r"[\].]x", ".x", True),
        (r"\\.", "\\x", True),
        (r"a.{2}", "abc", True),
    ],
)
def test_a_pattern_matches_what_it_matches_in_java(pattern: str, text: str, matches: bool) -> None:
    assert (compile_java(pattern).fullmatch(text) is not None) is matches


@given(st.text(alphabet="ab.\\[]^(?)s*", max_size=12))
def test_every_pattern_of_python_is_taken_and_no_other(pattern: str) -> None:
    import re
    import warnings

    def is_pattern(compile_: object) -> bool:
        try:
            compile_(pattern)  # type: ignore[operator]
        except re.error:
            return False
        return True

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert is_pattern(compile_java) is is_pattern(re.compile)
