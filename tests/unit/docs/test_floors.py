"""Rooms on floors, and the arrows that do not follow from others."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from tools.docs.floors import Room, draw, levels, needed
from tools.docs.imports import between, imports, modules

USES = {"top": {"middle", "ground"}, "middle": {"ground"}, "beside": {"ground"}, "ground": set()}


def test_a_room_stands_above_all_that_it_uses():
    assert levels(USES) == {"ground": 0, "middle": 1, "beside": 1, "top": 2}


def test_a_circle_has_no_floors():
    with pytest.raises(ValueError, match="a circle: a, b"):
        levels({"a": {"b"}, "b": {"a"}, "c": set()})


def test_a_use_that_follows_from_others_is_left_out():
    assert needed(USES)["top"] == {"middle"}


def test_each_room_is_drawn_with_its_name_and_caption():
    rooms = {name: Room(f"{name}/", f"the <{name}> & more") for name in USES}
    uses = {**USES, "top": {"middle", "beside"}, "attic": {"ground", "top"}}
    rooms["attic"] = Room("attic/", "")
    drawing = ElementTree.fromstring(draw("a house", rooms, uses))
    texts = {element.text for element in drawing.iter() if element.tag.endswith("text")}
    assert {"attic/", "top/", "middle/", "the <top> & more"} <= texts
    arrows = [element for element in drawing.iter() if element.get("marker-end")]
    assert len(arrows) == sum(map(len, needed(uses).values()))


def test_imports_in_functions_and_for_types_count(tmp_path):
    package = tmp_path / "barnabas"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "low.py").write_text("def f(): ...\n")
    (package / "types_.py").write_text("")
    (package / "high.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from barnabas import types_\n"
        "def g():\n    from barnabas.low import f\n"
    )
    found = imports(modules(package))
    assert found["barnabas.high"] == {"barnabas.low", "barnabas.types_"}
    assert between(["barnabas.high", "barnabas.low"], found) == {
        "barnabas.high": {"barnabas.low"},
        "barnabas.low": set(),
    }
