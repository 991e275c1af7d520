"""After any elections, cuts and losses, all replicas agree with the last leader."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

NODES = (1, 2, 3)

steps = st.one_of(
    st.tuples(st.just("produce"), st.integers(1, 4)),
    st.tuples(st.just("elect"), st.sampled_from(NODES)),
    st.tuples(st.just("tell"), st.sampled_from(NODES)),
    st.tuples(st.just("cut"), st.tuples(st.sampled_from(NODES), st.sampled_from(NODES))),
    st.tuples(st.just("heal"), st.none()),
    st.tuples(st.just("crash"), st.tuples(st.sampled_from(NODES), st.integers(0, 5))),
    st.tuples(st.just("wait"), st.sampled_from([0.0005, 0.0015, 0.01, 1.0])),
)


class History:
    """A cluster whose brokers learn of a new leader one after the other, or never."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.all = {node.node_id: node for node in cluster.add(*NODES)}
        self.leader, self.epoch = 1, 0
        cluster.elect(1, 0)

    def tell(self, node_id):
        if node_id in self.cluster.nodes:
            self.cluster.elect(self.leader, self.epoch, only=[self.all[node_id]])

    def elect(self, node_id):
        self.leader, self.epoch = node_id, self.epoch + 1
        self.tell(node_id)

    def produce(self, count):
        for node in self.cluster.nodes.values():
            partition = node.partitions.get((bytes(range(16)), 0))
            if partition is not None and partition.is_leader:
                for _ in range(count):
                    node.produce(b"%d" % self.epoch)

    def cut(self, pair):
        self.cluster.cut.add(pair)

    def heal(self, _):
        self.cluster.cut.clear()

    async def crash(self, which):
        node_id, lost = which
        node = self.all[node_id]
        end = node.log.log_end_offset
        await node.crash()
        if node_id == self.leader:
            self.epoch += 1  # what it led with may be gone
        node.restart(end=max(0, end - lost))
        self.tell(node_id)

    async def wait(self, seconds):
        await asyncio.sleep(seconds)


@given(st.lists(steps, min_size=5, max_size=40))
@settings(max_examples=examples(60, 1000), deadline=None)
def test_in_the_end_all_replicas_agree_with_the_last_leader(run_story, history):
    async def story(cluster):
        past = History(cluster)
        for name, argument in history:
            pending = getattr(past, name)(argument)
            if pending is not None:
                await pending
        past.heal(None)
        past.elect(2)
        for node_id in NODES:
            past.tell(node_id)
        cluster.nodes[2].produce(b"last")
        await cluster.settle(5)
        logs = {node.node_id: node.content() for node in cluster.nodes.values()}
        assert logs[1] == logs[2] == logs[3]
        bounds = {
            (node.log.log_start_offset, node.log.high_watermark, node.log.log_end_offset)
            for node in cluster.nodes.values()
        }
        assert len(bounds) == 1
        _, watermark, end = bounds.pop()
        assert watermark == end

    run_story(story)
