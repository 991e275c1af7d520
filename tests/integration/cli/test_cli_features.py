"""`barnabas features` against a broker."""

from __future__ import annotations

import pytest


def levels(barnabas) -> dict[str, int]:
    return {each["feature"]: each["level"] for each in barnabas("features", "list", "--json").json()}


def test_a_level_goes_down_and_up_again(barnabas):
    assert levels(barnabas)["share.version"] == 2
    said = barnabas("features", "downgrade", "share.version=1").out
    assert "share.version is at level 1" in said
    assert levels(barnabas)["share.version"] == 1
    barnabas("features", "upgrade", "share.version=2", "group.version=1")
    assert levels(barnabas) == {"group.version": 1, "share.version": 2, "transaction.version": 2}
    (share,) = (each for each in barnabas("features", "list").out.splitlines() if "share" in each)
    assert share.split() == ["share.version", "2", "0", "2"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "nothing to do"),
        (["share.version"], "NAME=VALUE"),
        (["share.version=two"], "a whole number"),
        (["share.version=1", "share.version=2"], "twice"),
    ],
)
def test_what_is_no_level_is_told_at_once(barnabas, words, told):
    assert told in barnabas("features", "upgrade", *words, code=2).err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["upgrade", "share.version=9"], "share.version has levels 0 to 2, not 9"),
        (["upgrade", "speed.version=1"], "there is no feature speed.version"),
        (["upgrade", "share.version=1"], "request a downgrade"),
    ],
)
def test_what_the_controller_refuses_is_told(barnabas, words, told):
    assert told in barnabas("features", *words, code=1).err
