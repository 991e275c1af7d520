"""The simulated ensemble behaves as a real one, and repeats a run with the same seed."""

import asyncio
from dataclasses import replace
from random import Random

import pytest
from simulation.ensemble import EnsembleConditions, SimulatedEnsemble
from simulation.environment import simulated_environment
from simulation.network import SimulatedNetwork
from simulation.virtual_time import VirtualProcess, run_virtual

from barnabas.broker.config import BrokerConfig
from barnabas.broker.interbroker import Channel
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.store import SessionState, StoreUnavailableError, UnknownOutcomeError
from barnabas.broker.server.broker import Broker
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest

TIMEOUT = EnsembleConditions().session_timeout
LOST = [SessionState.SUSPENDED, SessionState.OVERDUE, SessionState.LOST, SessionState.CONNECTED]


def play(scenario):
    async def run():
        ensemble = SimulatedEnsemble(Random(1))
        return await scenario(ensemble, await ensemble.open("one"), await ensemble.open("two"))

    return run_virtual(run())


def states_of(store):
    states = []
    store.on_state(states.append)
    return states


def test_a_write_whose_answer_is_lost_has_been_carried_out():
    async def scenario(ensemble, one, two):
        states, session = states_of(one), one.session_id
        ensemble.lose_answer("one")
        with pytest.raises(UnknownOutcomeError):
            await one.create("/a", b"x", ephemeral=True)
        with pytest.raises(StoreUnavailableError):
            await one.get("/a")
        await asyncio.sleep(1)
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert (await one.get("/a")).owner == session == one.session_id
        await one.set("/a", b"y")

    play(scenario)


def test_a_connection_that_breaks_under_a_write_leaves_its_outcome_open():
    async def scenario(ensemble, one, two):
        outcomes = set()
        for number in range(20):
            writing = asyncio.ensure_future(one.create(f"/n{number}"))
            await asyncio.sleep(0)
            ensemble.reset("one")
            with pytest.raises(UnknownOutcomeError):
                await writing
            await asyncio.sleep(2)
            outcomes.add(await one.exists(f"/n{number}") is None)
        assert outcomes == {True, False}

    play(scenario)


def test_a_short_cut_is_bridged_and_a_long_one_ends_the_session():
    async def scenario(ensemble, one, two):
        states, session = states_of(one), one.session_id
        await one.create("/a", ephemeral=True)
        ensemble.cut("one")
        await asyncio.sleep(TIMEOUT * 0.8)
        ensemble.heal("one")
        await asyncio.sleep(1)
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED] and one.session_id == session
        states.clear()
        seen = []
        await two.watch("/a", lambda event, path: seen.append((event.value, path)))
        ensemble.cut("one")
        await asyncio.sleep(TIMEOUT * 3)
        assert seen == [("deleted", "/a")]
        assert states == LOST[:2]
        ensemble.heal("one")
        await asyncio.sleep(1)
        assert states == LOST and one.session_id != session

    play(scenario)


def test_the_nodes_of_a_killed_process_go_when_its_session_is_over():
    async def scenario(ensemble, one, two):
        process = VirtualProcess("three")

        async def main():
            store = await ensemble.open("three")
            await store.create("/three", ephemeral=True)

        await process.run(main())
        await asyncio.sleep(TIMEOUT * 3)
        assert await two.exists("/three") is not None
        process.kill()
        await asyncio.sleep(TIMEOUT * 0.5)
        assert await two.exists("/three") is not None
        await asyncio.sleep(TIMEOUT)
        assert await two.exists("/three") is None

    play(scenario)


def test_a_server_that_lags_shows_old_nodes_and_watches_and_its_clients_own_writes_alone_are_waited_for():
    async def scenario(ensemble, one, two):
        seen = []
        await two.watch("/a", lambda event, path: seen.append(path))
        ensemble.lag("two", 5.0)
        await one.create("/a")
        await asyncio.sleep(1)
        assert await one.exists("/a") is not None
        assert await two.exists("/a") is None and not seen
        await asyncio.sleep(5)
        assert await two.exists("/a") is not None and seen == ["/a"]
        await one.set("/a", b"1")
        began = asyncio.get_running_loop().time()
        assert await two.set("/a", b"2") == 2  # writes have one order, whatever their clients have seen
        assert asyncio.get_running_loop().time() - began > 5
        assert (await two.get("/a")).data == b"2"

    play(scenario)


def test_a_server_that_is_held_back_hears_of_all_at_once_and_its_client_misses_what_was_between():
    async def scenario(ensemble, one, two):
        await one.create("/a", b"1")
        await two.sync()
        seen = []

        async def read():
            seen.append((await two.get("/a")).data)

        reads = []
        await two.watch("/a", lambda event, path: reads.append(asyncio.create_task(read())))
        ensemble.hold_back("two", 2.0)
        for value in (b"2", b"3", b"1"):
            await one.set("/a", value)
            await asyncio.sleep(0.3)
        assert not reads
        assert (await two.get("/a")).version == 0
        await asyncio.sleep(2)
        await asyncio.gather(*reads)
        assert set(seen) == {b"1"}
        assert (await two.get("/a")).version == 3
        await one.set("/a", b"4")
        await asyncio.sleep(0.5)
        assert (await two.get("/a")).data == b"4"

    play(scenario)


def test_a_sync_waits_until_what_others_wrote_was_reported():
    async def scenario(ensemble, one, two):
        seen = []
        await two.watch("/a", lambda event, path: seen.append(path))
        ensemble.lag("two", 5.0)
        await one.create("/a")
        await two.sync()
        assert seen == ["/a"]
        assert asyncio.get_running_loop().time() >= 5
        assert await two.exists("/a") is not None

    play(scenario)


def test_requests_of_a_client_are_answered_in_their_order_with_its_events_between_them():
    async def scenario(ensemble, one, two):
        told = []
        await one.create("/a")
        await one.watch("/a", lambda event, path: told.append("event"))
        requests = []
        for number in range(30):
            requests.append(asyncio.ensure_future(one.set("/a", b"%d" % number)))
            requests.append(asyncio.ensure_future(one.get("/a")))
        for number, request in enumerate(requests):
            request.add_done_callback(lambda _, number=number: told.append(number))
        await asyncio.gather(*requests)
        numbers = [number for number in told if number != "event"]
        assert numbers == list(range(60))
        assert all(told[: told.index(number)].count("event") > number // 2 for number in range(0, 60, 2))
        assert [node.result().data for node in requests[1::2]] == [b"%d" % n for n in range(30)]

    play(scenario)


def test_a_broker_lives_through_the_end_of_its_session_and_lost_answers():
    async def scenario(ensemble, one, two):
        network = SimulatedNetwork(Random(1))
        environment = replace(
            simulated_environment(1, network=network.host("broker")),
            open_store=lambda: ensemble.open("broker"),
        )
        config = BrokerConfig.from_text({"listeners": "PLAINTEXT://broker:9092", "log.dirs": "/data"})
        process = VirtualProcess("broker")
        broker = Broker(config, environment)
        await process.run(broker.start())
        client = Channel(
            network.host("client"),
            lambda: ("broker", 9092),
            name="broker",
            client_id="client",
            rng=Random(1),
        )

        async def create(name):
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            (made,) = (await client.send(CreateTopicsRequest(topics=[topic]), timeout_s=60)).topics
            return made.error_code

        assert await create("a") == 0
        ensemble.expire("broker")
        await asyncio.sleep(5)
        assert await two.exists(znodes.broker(config.node_id)) is not None
        assert await create("b") == 0
        ensemble.lose_answer("broker")
        await create("c")
        await asyncio.sleep(5)
        assert await create("d") == 0
        assert {"a", "b", "d"} <= set(broker.image.topics)
        process.kill()
        await asyncio.sleep(2 * TIMEOUT)
        assert await two.exists(znodes.broker(config.node_id)) is None

    play(scenario)


def test_a_seed_decides_what_happens():
    def run(seed):
        async def scenario():
            seen = []
            loop = asyncio.get_running_loop()
            rng = Random(seed)
            ensemble = SimulatedEnsemble(
                rng, observe=lambda name, what: seen.append((loop.time(), name, what))
            )
            stores = [await ensemble.open(name) for name in ("one", "two", "three")]
            await stores[0].create("/n")

            async def write(store):
                for _ in range(20):
                    try:
                        await store.set("/n", store.name.encode())
                    except StoreUnavailableError:
                        await asyncio.sleep(1)

            async def harm():
                for fault in (ensemble.reset, ensemble.lose_answer, ensemble.expire, ensemble.cut):
                    fault("two")
                    await asyncio.sleep(0.5)
                ensemble.heal("two")

            await asyncio.gather(harm(), *map(write, stores))
            return seen

        return run_virtual(scenario())

    assert run(1) == run(1) != run(2)


def test_what_a_short_cut_loses_is_not_waited_for_for_ever():
    async def scenario(ensemble, one, two):
        write = asyncio.ensure_future(one.create("/a"))
        ensemble.cut("one")
        await asyncio.sleep(TIMEOUT * 0.2)
        ensemble.heal("one")
        with pytest.raises(UnknownOutcomeError):
            await write
        await asyncio.sleep(1)
        assert await one.exists("/a") is None

    play(scenario)
