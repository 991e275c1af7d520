"""A broker's logs on a simulated disk, in virtual time."""

from __future__ import annotations

import asyncio

from simulation.clocks import VirtualClock
from simulation.environment import simulated_environment
from simulation.faulty_disk import FaultyDisk

from barnabas.base.types import TopicPartition
from barnabas.broker.config import BrokerConfig, TopicConfig
from barnabas.broker.logs.manager import LogManager
from barnabas.kafka.records import Record, encode_batch

DELAY_MS = 60_000
CONFIG = TopicConfig(file_delete_delay_ms=DELAY_MS, segment_bytes=200, retention_ms=1000)


class AtOnce:
    """A pool that makes each call at once."""

    def run(self, work, /, *args, **kwargs):
        done = asyncio.get_running_loop().create_future()
        try:
            done.set_result(work(*args, **kwargs))
        except OSError as error:
            done.set_exception(error)
        return done


class Bench:
    def __init__(self, *log_dirs, disk=None, is_clustered=False):
        self.disk = disk or FaultyDisk()
        self.offline = []
        self.clock = VirtualClock(asyncio.get_running_loop())
        config = BrokerConfig(node_id=1, log_dirs=log_dirs or ("/a", "/b"))
        environment = simulated_environment(clock=self.clock, filesystem=self.disk)
        self.logs = LogManager(config, environment, AtOnce(), self.offline.append, is_clustered=is_clustered)
        self.logs.open("c")

    def create(self, name, records=0, config=CONFIG, **header):
        log = self.logs.create(TopicPartition(name, 0), name.encode() * 16, config)
        for number in range(records):
            batch = encode_batch([Record(None, bytes(100), self.clock.now_ms())], **header)
            log.append_as_leader(batch, 0)
            log.advance_high_watermark(number + 1)
        return log

    async def checkpoint(self, of):
        for directory in self.logs.directories:
            await self.logs.checkpoint(directory, of)

    async def drop_expired(self):
        for directory in self.logs.directories:
            await self.logs.drop_expired(directory)

    def folders(self, path):
        return sorted(entry.name for entry in self.disk.entries(path) if "checkpoint" not in entry.name)

    def segments(self, log):
        return sorted(entry.name for entry in self.disk.entries(log.files.path) if ".log" in entry.name)


def hosted(names):
    """Return topics of one partition each, with their ids."""
    return {TopicPartition(name, 0): name.encode() * 16 for name in names}


def incomplete(bench):
    return sorted(name.decode()[0] + f"-{number}" for name, number in bench.logs.incomplete.registered)


def append(bench, log):
    log.append_as_leader(encode_batch([Record(None, bytes(100), bench.clock.now_ms())]), 0)
