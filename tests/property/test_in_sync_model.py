"""A leader with followers that crash, lag and return, and with a controller whose answers are late.

Broker 1 leads with a real `Partition`. Followers and controller are a model of a few lines each. The leader
can receive old states, old brokers, fetches of a follower's earlier process, and late answers to its
proposals. After every step, each broker that can be elected has all records that the leader counts as
committed.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from simulation.clocks import ManualClock
from simulation.environment import simulated_environment
from simulation.faulty_disk import FaultyDisk
from tests.effort import examples

from barnabas.base.errors import ErrorCode
from barnabas.base.types import TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.controller.partition_changes import alter_isr, with_isr
from barnabas.broker.logs import LogDirectory
from barnabas.broker.metadata.image import BrokerImage, BrokerState, PartitionState
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.partition.progress import LeaderContext
from barnabas.broker.storage import OpenFiles, Origin
from barnabas.kafka.records import Record, encode_batch

LEADER, FOLLOWERS = 1, (2, 3)
BATCH = encode_batch([Record(None, b"v", timestamp=1_700_000_000_000)])
LAG = 30.0
followers = st.sampled_from(FOLLOWERS)
#: true now and then, for what upsets everything
rarely = st.integers(0, 4).map(lambda number: number == 4)


class Follower:
    """The real state of a follower."""

    def __init__(self):
        self.end = 0
        self.epoch = 100
        self.state = BrokerState.RUNNING


class InSyncModel(RuleBasedStateMachine):
    @initialize(min_isr=st.integers(1, 3))
    def begin(self, min_isr):
        self.min_isr = min_isr
        self.time = 0.0
        self.followers = {broker: Follower() for broker in FOLLOWERS}
        #: what the controller has decided, one after the other, and how much of it the leader has heard
        self.decided = [PartitionState((1, 2, 3), (1, 2, 3), LEADER, 5, 0)]
        self.heard = 0
        self.known_brokers = self.brokers()
        #: fetches under way, proposals under way, answers under way
        self.fetches = []
        self.proposals = []
        self.answers = []
        directory = LogDirectory.open(
            OpenFiles(FaultyDisk()),
            "/data",
            simulated_environment(clock=ManualClock()),
            cluster_id="c",
            node_id=LEADER,
        )
        config = TopicConfig(min_insync_replicas=min_isr)
        log = directory.create(TopicPartition("t", 0), bytes(range(16)), config)
        self.partition = Partition(
            log,
            self.decided[0],
            LEADER,
            on_flush_due=lambda partition: None,
            context=LeaderContext(lambda: self.known_brokers, lambda: self.time),
        )
        self.watermark = 0

    # --- what is true ---

    @property
    def state(self):
        return self.decided[-1]

    @property
    def end(self):
        return self.partition.log.log_end_offset

    def brokers(self):
        alive = {b: BrokerImage(b, (), epoch=f.epoch, state=f.state) for b, f in self.followers.items()}
        return {LEADER: BrokerImage(LEADER, (), epoch=50), **alive}

    def decide(self, state):
        if state != self.state:
            self.decided.append(state._replace(partition_epoch=self.state.partition_epoch + 1))

    # --- the leader ---

    @rule(count=st.integers(1, 3))
    def append(self, count):
        if self.partition.is_leader:
            for _ in range(count):
                self.partition.append(BATCH, 1, Origin.CLIENT)

    @rule(seconds=st.sampled_from([1.0, LAG / 2, LAG + 1]))
    def wait(self, seconds):
        self.time += seconds
        self.partition.check_in_sync()

    @rule()
    def propose(self):
        proposal = self.partition.propose()
        if proposal is not None:
            self.proposals.append(proposal)

    @precondition(lambda self: self.heard < len(self.decided) - 1)
    @rule(left=st.integers(0, 2))
    def hear_of_decisions(self, left):
        self.heard = max(self.heard, len(self.decided) - 1 - left)
        self.partition.update(self.decided[self.heard])

    @rule()
    def hear_of_everything(self):
        self.heard = len(self.decided) - 1
        self.partition.update(self.state)
        self.hear_of_brokers()

    @rule()
    def hear_of_brokers(self):
        self.known_brokers = self.brokers()
        self.partition.check_in_sync()

    @precondition(lambda self: self.answers)
    @rule(data=st.data(), is_lost=st.booleans())
    def answer(self, data, is_lost):
        number = data.draw(st.integers(0, len(self.answers) - 1))
        proposal, code, state = self.answers.pop(number)
        if is_lost:
            self.partition.settle_proposal(proposal, None)
        else:
            self.partition.settle_proposal(proposal, code, state)

    @precondition(lambda self: self.proposals)
    @rule(data=st.data())
    def give_up_waiting_for_an_answer(self, data):
        """Stop waiting for an answer. The controller may still execute the request."""
        proposal = self.proposals[data.draw(st.integers(0, len(self.proposals) - 1))]
        self.partition.settle_proposal(proposal, None)

    # --- the followers ---

    @rule(broker=followers)
    def catch_up(self, broker):
        for _ in range(2):
            self.fetch_at_once(broker, self.end)

    @rule(broker=followers, got=st.integers(0, 4))
    def fetch_at_once(self, broker, got):
        follower = self.followers[broker]
        if not any(each[:2] == (broker, follower.epoch) for each in self.fetches):
            self._take(broker, follower.epoch, follower.end, got)

    @rule(broker=followers)
    def fetch_over_a_slow_connection(self, broker):
        follower = self.followers[broker]
        self.fetches.append((broker, follower.epoch, follower.end))

    @precondition(lambda self: self.fetches)
    @rule(data=st.data(), got=st.integers(0, 4))
    def take_fetch(self, data, got):
        """Receive a fetch. Fetches of one connection arrive in order; those of an earlier process arrive at
        any time.
        """
        heads = {}
        for number, (broker, epoch, _) in enumerate(self.fetches):
            heads.setdefault((broker, epoch), number)
        number = data.draw(st.sampled_from(sorted(heads.values())))
        self._take(*self.fetches.pop(number), got)

    def _take(self, broker, epoch, offset, got):
        follower = self.followers[broker]
        if not self.partition.is_leader or self.partition.leader_epoch != self.state.leader_epoch:
            return
        try:
            self.partition.followed(broker, epoch, offset)
        except Exception as error:
            assert getattr(error, "code", None) == ErrorCode.NOT_LEADER_OR_FOLLOWER
            return
        if follower.epoch == epoch and follower.end == offset:
            follower.end = min(self.end, offset + got)

    @rule(broker=followers, lost=st.integers(0, 5), really=rarely)
    def crash(self, broker, lost, really):
        """Crash a broker. It returns with fewer records, and the controller removes it from ISR and ELR
        before its first fetch.
        """
        if not really:
            return
        follower = self.followers[broker]
        follower.end = max(0, follower.end - lost)
        follower.epoch += 10
        follower.state = BrokerState.RUNNING
        isr = tuple(b for b in self.state.isr if b != broker)
        elr = tuple(b for b in self.state.elr if b != broker)
        self.decide(with_isr(self.state._replace(elr=elr), isr, self.min_isr, frozenset({broker})))

    @rule(broker=followers, really=rarely)
    def lose_session(self, broker, really):
        """Let the controller treat a broker as dead, although it lives."""
        if not really:
            return
        isr = tuple(b for b in self.state.isr if b != broker)
        self.decide(with_isr(self.state, isr, self.min_isr))

    @rule(broker=followers)
    def run(self, broker):
        self.followers[broker].state = BrokerState.RUNNING

    @rule(broker=followers, really=rarely)
    def shut_down(self, broker, really):
        if really:
            self.followers[broker].state = BrokerState.SHUTTING_DOWN

    # --- the controller ---

    @precondition(lambda self: self.proposals)
    @rule(data=st.data())
    def carry_out(self, data):
        self._carry_out(self.proposals.pop(data.draw(st.integers(0, len(self.proposals) - 1))))

    @rule(is_heard=st.booleans())
    def propose_and_carry_out(self, is_heard):
        self.hear_of_everything()
        proposal = self.partition.propose()
        if proposal is not None:
            self._carry_out(proposal)
            if is_heard:
                self.partition.settle_proposal(*self.answers.pop())

    def _carry_out(self, proposal):
        state = self.state
        if proposal.leader_epoch != state.leader_epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif proposal.partition_epoch != state.partition_epoch:
            code = ErrorCode.INVALID_UPDATE_VERSION
        elif any(not self._may_be_in_sync(broker, epoch) for broker, epoch in proposal.isr):
            code = ErrorCode.INELIGIBLE_REPLICA
        else:
            code = ErrorCode.NONE
            self.decide(alter_isr(state, proposal.members, self.min_isr))
        self.answers.append((proposal, code, self.state if code == ErrorCode.NONE else None))

    def _may_be_in_sync(self, broker, epoch):
        if broker == LEADER:
            return True
        follower = self.followers[broker]
        return follower.state is BrokerState.RUNNING and epoch in (-1, follower.epoch)

    @rule(really=rarely)
    def elect_the_same_leader_again(self, really):
        if really:
            self.decide(self.state._replace(leader_epoch=self.state.leader_epoch + 1))

    # --- what must hold ---

    @invariant()
    def whoever_may_be_elected_has_what_is_committed(self):
        watermark = self.partition.log.high_watermark
        for broker in {*self.state.isr, *self.state.elr} - {LEADER}:
            assert self.followers[broker].end >= watermark, broker

    @invariant()
    def the_watermark_moves_forward_within_the_log(self):
        assert self.watermark <= self.partition.log.high_watermark <= self.end
        self.watermark = self.partition.log.high_watermark

    def teardown(self):
        """Check that all replicas are in sync at the end."""
        if not hasattr(self, "partition"):
            return
        for follower in self.followers.values():
            follower.state = BrokerState.RUNNING
        self.known_brokers = self.brokers()
        while self.proposals:
            self.partition.settle_proposal(self.proposals.pop(), None)
        while self.answers:
            self.partition.settle_proposal(self.answers.pop()[0], None)
        for _ in range(5):
            self.partition.update(self.state)
            for broker, follower in self.followers.items():
                self.partition.followed(broker, follower.epoch, follower.end)
                follower.end = self.end
            proposal = self.partition.propose()
            if proposal is not None:
                self.decide(alter_isr(self.state, proposal.members, self.min_isr))
                self.partition.settle_proposal(proposal, ErrorCode.NONE, self.state)
            self.whoever_may_be_elected_has_what_is_committed()
        assert set(self.state.isr) == {1, 2, 3}
        assert self.partition.log.high_watermark == self.end


TestInSyncModel = InSyncModel.TestCase
TestInSyncModel.settings = settings(max_examples=examples(100, 10_000), stateful_step_count=80, deadline=None)
