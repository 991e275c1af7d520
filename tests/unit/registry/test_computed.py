"""Answers that take long: a worker computes them, and the registry caches them within a size limit."""

from __future__ import annotations

import threading

import pytest

from barnabas.registry.computed import Computed, NotComputed
from barnabas.registry.errors import Code, InvalidSchemaError, RegistryError


class Questions:
    """Requests to a `Computed` with room for ten characters. It notes the computations."""

    def __init__(self):
        self.known = Computed(size=10)
        self.computed = []

    def compute(self, text):
        self.computed.append(text)
        if text == "bad":
            raise InvalidSchemaError("for the test")
        if text == "down":
            raise RegistryError(Code.OPERATION_TIMEOUT, "for the test")
        return text.upper()

    def ask(self, text):
        while True:
            try:
                return self.known(text, len(text), lambda deadline: self.compute(text))
            except NotComputed as missing:
                missing.compute(0)


def test_an_answer_is_computed_where_it_may_block_and_then_known():
    known = Computed(size=10)
    with pytest.raises(NotComputed) as missing:
        known("q", 1, lambda deadline: f"by {deadline}")
    thread = threading.Thread(target=missing.value.compute, args=(7,))
    thread.start()
    thread.join()
    assert known("q", 1, pytest.fail) == "by 7"


def test_answers_are_kept_as_long_as_there_is_room():
    questions = Questions()
    assert [questions.ask(text) for text in ("abcd", "efgh", "abcd", "ijkl", "abcd", "efgh")] == [
        "ABCD", "EFGH", "ABCD", "IJKL", "ABCD", "EFGH",
    ]  # fmt: skip
    assert questions.computed == ["abcd", "efgh", "ijkl", "efgh"]
    assert questions.ask("longer than all the room") == "LONGER THAN ALL THE ROOM"


def test_what_is_the_schemas_fault_is_known_and_what_is_not_is_asked_again():
    questions = Questions()
    for _ in range(2):
        with pytest.raises(InvalidSchemaError, match="for the test"):
            questions.ask("bad")
        with pytest.raises(RegistryError, match="for the test"):
            questions.ask("down")
    assert questions.computed == ["bad", "down", "down"]
