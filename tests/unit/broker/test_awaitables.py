"""Prompt futures call their own callbacks in the turn in which they are done."""

import asyncio

import pytest

from barnabas.broker.awaitables import LongPoll, SecondPhase


@pytest.mark.parametrize("kind", [LongPoll, SecondPhase])
def test_prompt_callbacks_run_at_once_and_in_order_and_the_others_later(kind):
    async def scenario():
        future, called = kind(), []
        future.add_done_callback(lambda _: called.append("later"))
        future.call_at_once(lambda done: called.append(("first", done.result())))
        future.call_at_once(lambda done: called.append(("second", done.result())))
        future.set_result(7)
        assert called == [("first", 7), ("second", 7)]
        assert await future == 7
        await asyncio.sleep(0)
        assert called[2:] == ["later"]
        future.call_at_once(called.append)
        assert len(called) == 3
        await asyncio.sleep(0)
        assert called[3:] == [future]

    asyncio.run(scenario())


@pytest.mark.parametrize("end", [lambda f: f.set_exception(OSError()), lambda f: f.cancel()])
def test_prompt_callbacks_learn_of_errors_and_cancellations_once(end):
    async def scenario():
        future, called = LongPoll(), []
        future.call_at_once(lambda done: called.append(done.cancelled() or type(done.exception())))
        end(future)
        future.cancel()
        return called

    assert asyncio.run(scenario()) in ([True], [OSError])


def test_callback_that_fails_is_reported_and_the_others_are_called():
    async def scenario():
        reported, called = [], []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        future = LongPoll()
        future.call_at_once(lambda done: 1 / 0)
        future.call_at_once(called.append)
        future.set_result(1)
        assert called == [future]
        assert isinstance(reported[0]["exception"], ZeroDivisionError)

    asyncio.run(scenario())


def test_long_poll_that_gives_way_is_over_at_once():
    async def scenario():
        poll, called = LongPoll(1), []
        poll.ended_by(lambda: poll.set_result("now"))
        poll.call_at_once(called.append)
        poll.give_way(1)
        assert not called
        poll.give_way(2)
        assert called == [poll]
        poll.give_way(2)  # it is over

    asyncio.run(scenario())
