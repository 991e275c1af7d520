"""A change that a page requests: its command as a shell takes it, and its fields."""

from __future__ import annotations

import pytest

from barnabas.console.change import Change, must_confirm, number_of, text_of, word_of
from barnabas.console.pages.query import QueryError


def nothing():
    raise AssertionError("a change is made only when it is carried out")


def test_the_command_names_the_servers_and_quotes_what_a_shell_would_read():
    change = Change(["topics", "create", "a; b"], nothing)
    assert change.command("h:1,i:2") == "barnabas topics create 'a; b' --bootstrap-server h:1,i:2"


def test_commands_that_follow_read_the_output_of_the_one_before():
    change = Change(["topics", "reassign", "plan"], nothing, None, ["topics", "reassign", "execute", "-"])
    plan, execute = change.command("h:1").split(" | ")
    assert plan == "barnabas topics reassign plan --bootstrap-server h:1"
    assert execute == "barnabas topics reassign execute - --bootstrap-server h:1"


def test_a_record_is_shown_to_the_one_who_sends_it_and_not_to_the_log():
    change = Change(["produce", "orders"], nothing, given="it's 5 %")
    assert change.command("h:1").startswith("printf '%s\\n' 'it'\"'\"'s 5 %' | barnabas produce")
    assert change.command("h:1", with_input=False) == "barnabas produce orders --bootstrap-server h:1"


def test_another_programs_command_stands_alone():
    assert Change([], nothing, shell=["curl", "-X", "DELETE", "a b"]).command("h:1") == "curl -X DELETE 'a b'"


@pytest.mark.parametrize("value", [None, "", " ", 5, ["a"], True])
def test_a_text_that_is_missing_is_told(value):
    with pytest.raises(QueryError, match="topic is missing"):
        text_of({"topic": value}, "topic")


def test_a_word_is_one_of_those_allowed():
    assert word_of({"to": "latest"}, "to", ["earliest", "latest"]) == "latest"
    with pytest.raises(QueryError, match="to=soon: write one of earliest, latest"):
        word_of({"to": "soon"}, "to", ["earliest", "latest"])


def test_a_number_stands_in_its_limits_or_is_not_there():
    assert number_of({}, "partitions", 1, 9) is None
    assert [number_of({"partitions": n}, "partitions", 1, 9) for n in (1, 9)] == [1, 9]
    for wrong in (0, 10, "3", 3.0, True):
        with pytest.raises(QueryError, match="a whole number from 1 to 9"):
            number_of({"partitions": wrong}, "partitions", 1, 9)


def test_what_is_deleted_is_typed_letter_by_letter():
    must_confirm({"confirm": "orders"}, "orders", "its records go")
    for typed in ({}, {"confirm": "Orders"}, {"confirm": True}):
        with pytest.raises(QueryError, match="type orders; its records go"):
            must_confirm(typed, "orders", "its records go")
