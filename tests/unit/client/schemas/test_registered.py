"""Schemas by their names, and the schemas to which they refer."""

from __future__ import annotations

import pytest

from barnabas.client.schemas.registered import SchemaError, SchemaNameError, find, path_of
from barnabas.client.schemas.registry import RegistryError


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("7", "/schemas/ids/7"),
        ("orders-value", "/subjects/orders-value/versions/latest"),
        ("orders-value/3", "/subjects/orders-value/versions/3"),
        ("orders-value/latest", "/subjects/orders-value/versions/latest"),
        ("a/b", "/subjects/a%2Fb/versions/latest"),
        ("a/b/2", "/subjects/a%2Fb/versions/2"),
        ("7/latest", "/subjects/7/versions/latest"),
        (":.other:s", "/subjects/%3A.other%3As/versions/latest"),
    ],
)
def test_a_schema_is_named_by_its_id_its_subject_or_a_version(name, path):
    assert path_of(name) == path


@pytest.mark.parametrize("name", ["", " ", ".", "../1", "/1", "9" * 30, "2147483648", "a/" + "9" * 30])
def test_what_names_no_schema_is_refused(name):
    with pytest.raises(SchemaNameError, match="schema "):
        path_of(name)


class Fake:
    """A registry whose schemas are in a dict, by path."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = []

    def get(self, path):
        self.asked.append(path)
        return self.answers[path]


def reference(subject):
    return {"name": f"{subject}.json", "subject": subject, "version": 1}


def version(subject, *references, **more):
    return {
        "subject": subject,
        "version": 1,
        "id": 7,
        "schema": f"text of {subject}",
        "references": [reference(each) for each in references],
        **more,
    }


def test_references_stand_before_what_needs_them_and_each_is_asked_for_once():
    registry = Fake(
        {
            f"/subjects/{subject}/versions/{number}": version(subject, *referred, schemaType="JSON")
            for subject, referred in {"a": "bc", "b": "d", "c": "d", "d": ""}.items()
            for number in ("1?deleted=true", "latest")
        }
    )
    found, same = find(registry, "a")
    assert same == "a/1"
    assert (found.id, found.kind, found.text) == (7, "JSON", "text of a")
    assert [name for name, _ in found.references] == ["d.json", "b.json", "c.json"]
    assert len(registry.asked) == 4


def test_protobuf_is_asked_for_in_the_form_that_needs_no_compiler():
    plain = version("a", "b", schemaType="PROTOBUF")
    registry = Fake(
        {
            "/schemas/ids/7": {"schema": "text", "schemaType": "PROTOBUF"},
            "/schemas/ids/7?format=serialized": plain,
            "/subjects/b/versions/1?deleted=true&format=serialized": version("b", schemaType="PROTOBUF"),
        }
    )
    found, same = find(registry, "7")
    assert (same, found.text, found.references) == ("7", "text of a", (("b.json", "text of b"),))


@pytest.mark.parametrize(
    "answer",
    [
        {"schema": "{}", "references": [{"name": "x"}]},
        {"schema": "{}", "references": [{"name": "x", "subject": "x", "version": "one"}]},
        {"schema": "{}", "references": 5},
        {},
        [],
    ],
    ids=str,
)
def test_an_answer_that_is_none_of_a_registry_is_an_error(answer):
    with pytest.raises(RegistryError, match="schema 7 cannot be used"):
        find(Fake({"/schemas/ids/7": answer}), "7")


def test_references_beyond_the_bounds_are_given_up():
    texts = {"schema": "x" * 3_000_000, "schemaType": "JSON"}
    many = {"schema": "{}", "schemaType": "JSON", "references": [reference(f"s{n}") for n in range(5)]}
    registry = Fake(
        {"/schemas/ids/7": many} | {f"/subjects/s{n}/versions/1?deleted=true": texts for n in range(5)}
    )
    with pytest.raises(SchemaError, match=r"schema 7 cannot be used: .*too much text"):
        find(registry, "7")
    assert len(registry.asked) < 5
