"""Searches by clients' regular expressions."""

from __future__ import annotations

import asyncio
import time

import pytest

from barnabas.base.environment.blocking import Threads
from barnabas.broker.coordinator import pattern_search
from barnabas.broker.coordinator.groups.consumer import regex_subscriptions as regexes
from barnabas.broker.coordinator.pattern_search import CostlyPatternError, PatternSearch

#: its automaton is too large to be kept: each name of 200 characters takes milliseconds
COSTLY = "(a?){1000}!"


@pytest.fixture
def searching():
    """Run a scenario with a search."""

    def run(scenario):
        async def main():
            search = PatternSearch(Threads())
            try:
                return await scenario(search)
            finally:
                search.stop()

        return asyncio.run(main())

    return run


def names(count, length=200):
    return [("a" * length)[: length - 8] + f"{number:08}" for number in range(count)]


def test_whole_names_are_matched_in_their_order(searching):
    async def scenario(search):
        many = [f"topic-{number}" for number in range(5000)]
        assert await search.find("topic-.?.?", many) == many[:100]
        assert await search.find("topic", many) == []
        assert await search.find("x", []) == []
        with pytest.raises(ValueError, match="missing"):
            await search.find("(", many)

    searching(scenario)


def test_a_costly_pattern_holds_neither_the_loop_nor_the_interpreter(searching):
    async def scenario(search):
        longest = turns = 0

        async def others():
            nonlocal longest, turns
            while True:
                began = time.thread_time()
                await asyncio.sleep(0)
                longest, turns = max(longest, time.thread_time() - began), turns + 1

        serving = asyncio.ensure_future(others())
        assert await search.find(COSTLY, names(100)) == []
        serving.cancel()
        assert turns > 100
        assert longest < 0.01

    searching(scenario)


def test_a_cheap_pattern_takes_many_short_turns(searching):
    many = names(20_000)  # made before a turn is measured

    async def scenario(search):
        longest = 0.0

        async def others():
            nonlocal longest
            while True:
                began = time.thread_time()
                await asyncio.sleep(0)
                longest = max(longest, time.thread_time() - began)

        serving = asyncio.ensure_future(others())
        await asyncio.sleep(0)
        assert len(await search.find("a+.*0", many)) == 2000
        serving.cancel()
        assert longest < 0.02

    searching(scenario)


def test_a_short_search_does_not_wait_for_all_of_a_long_one(searching):
    async def scenario(search):
        long = asyncio.ensure_future(search.find(COSTLY, names(200)))
        await asyncio.sleep(0)
        assert await search.find("b.*", ["a", "b"]) == ["b"]
        assert not long.done()
        await long

    searching(scenario)


def test_a_search_that_takes_too_long_is_given_up(searching, monkeypatch):
    monkeypatch.setattr(pattern_search, "MAX_SECONDS", 0.0)

    async def scenario(search):
        with pytest.raises(CostlyPatternError, match="seconds"):
            await search.find(COSTLY, names(10))

    searching(scenario)


def test_a_costly_expression_of_a_group_keeps_its_topics_and_harms_no_other(searching, monkeypatch, caplog):
    async def scenario(search):
        find = search.find

        async def find_unless_costly(pattern, names):
            if pattern == COSTLY:
                raise CostlyPatternError("it takes more than 5 seconds")
            return await find(pattern, names)

        monkeypatch.setattr(search, "find", find_unless_costly)
        before = {COSTLY: frozenset({"kept"}), "t.*": frozenset()}
        found = await regexes.resolve(search, before, ["t1", "t2", "hidden", "t3"], lambda name: name != "t3")
        assert found == {COSTLY: {"kept"}, "t.*": {"t1", "t2"}}
        assert f"regular expression {COSTLY}: it takes" in caplog.text

    searching(scenario)
