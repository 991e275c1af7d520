"""The client between brokers, with a whole broker, on the simulated and on the real network."""

import asyncio
import random

from simulation.environment import simulated_environment
from simulation.network import NetworkConditions, SimulatedNetwork
from simulation.virtual_time import run_virtual

from barnabas.base.environment.environment import Environment
from barnabas.base.environment.network import SocketNetwork
from barnabas.base.system import event_loop
from barnabas.broker.config import BrokerConfig
from barnabas.broker.interbroker import BrokerClient
from barnabas.broker.server.broker import Broker
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.kafka.protocol.messages.metadata import MetadataRequest
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.records import Record, encode_batch

RECORDS = 64
RECORD_BYTES = 50_000


async def produce_and_fetch(broker, brokers):
    """Create a topic, write megabytes to it and read them, over two channels. The
    fetch waits for the records.
    """
    control, fetches = brokers.channel(1, "control"), brokers.channel(1, "fetch")
    topic = CreatableTopic(name="large", num_partitions=1, replication_factor=1)
    created = await control.send(CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
    topic_id = created.topics[0].topic_id
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 24)
    fetch = FetchRequest(
        max_wait_ms=20_000,
        min_bytes=RECORDS * RECORD_BYTES,
        max_bytes=1 << 24,
        topics=[FetchTopic(topic="large", topic_id=topic_id, partitions=[wanted])],
    )
    fetched = fetches.submit(fetch)
    values = [random.Random(number).randbytes(RECORD_BYTES) for number in range(RECORDS)]
    for value in values:
        batch = encode_batch([Record(None, value, broker.clock.now_ms())])
        data = TopicProduceData(
            name="large",
            topic_id=topic_id,
            partition_data=[PartitionProduceData(index=0, records=batch)],
        )
        await control.send(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data]))
    records = (await fetched).responses[0].partitions[0].records
    return values, b"".join(map(bytes, records if isinstance(records, list) else [records]))


async def scenario(environment, client_network, host, folder):
    config = BrokerConfig(log_dirs=(folder,), listeners=("PLAINTEXT://:0",))
    broker = Broker(config, environment)
    await broker.start()
    brokers = BrokerClient(
        client_network,
        lambda broker_id: (host, broker.bound[0].port),
        client_id="tests",
        rng=random.Random(1),
    )
    try:
        described = await brokers.channel(1, "control").send(MetadataRequest(topics=[]))
        assert described.brokers[0].host == environment.network.machine_name()
        values, records = await produce_and_fetch(broker, brokers)
        assert all(value in records for value in values)
    finally:
        await brokers.close()
        await broker.stop()


def test_a_whole_broker_serves_it_over_sockets(tmp_path):
    event_loop.run(scenario(Environment.of_system(), SocketNetwork(), "localhost", str(tmp_path)))


def test_a_whole_broker_serves_it_in_memory_and_virtual_time():
    async def simulated():
        network = SimulatedNetwork(random.Random(1), NetworkConditions(window=20_000, splits=0.5))
        network.slow("broker-1", "client", 1_000_000.0)
        environment = simulated_environment(network=network.host("broker-1"))
        await scenario(environment, network.host("client"), "broker-1", "/data")
        assert asyncio.get_running_loop().time() > RECORDS * RECORD_BYTES / 1_000_000

    run_virtual(simulated())
