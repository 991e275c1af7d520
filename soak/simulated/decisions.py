"""Checks each transaction of the cluster's metadata."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from barnabas.base.types import NO_BROKER, BrokerId, TopicId, TopicPartition, topic_id_from_str
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.image import Admission, PartitionState
from barnabas.broker.metadata.store import Operation
from barnabas.broker.metadata.tree import Change
from soak.simulated.plan import LEAST_IN_SYNC
from soak.simulated.stage import Stage

_TOPIC_DEPTH = len(znodes.TOPICS.split("/"))


class Decisions:
    """Reads the transactions of the metadata in their order, and reports invalid ones.

    Attributes:
        states: the state of each partition that the cluster has decided.
        topic_ids: the id of each existing topic.
        deleted: the ids of topics whose deletion was decided.
        version: a number that rises with each change of these attributes, or of the set of complete replicas.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.states: dict[TopicPartition, PartitionState] = {}
        self.topic_ids: dict[str, TopicId] = {}
        self.deleted: dict[TopicId, None] = {}
        self.version = 0
        #: told of each replica that a leader has had admitted to the ISR
        self.on_joined: Callable[[TopicPartition, BrokerId, PartitionState], None] = lambda *_: None
        self._assignments: dict[str, znodes.Assignment] = {}
        self._controller_epoch = 0
        #: by leader epoch
        self._leaders: dict[tuple[TopicId, int, int], BrokerId] = {}
        #: the present epoch of each broker, -1 when it is gone
        self._registered: dict[BrokerId, int] = {}
        #: replicas that may lack what was committed: their machines lost what was not fsynced
        self._suspects: dict[tuple[BrokerId, TopicPartition], None] = {}

    def suspect(self, broker_id: BrokerId) -> None:
        """Note that a machine has lost data without an fsync. Its replicas may lack records until the
        controller reacts.
        """
        self.version += 1
        for name, state in self.states.items():
            if broker_id in state.isr or broker_id in state.elr:
                self._suspects[broker_id, name] = None
        # The registration is that of a broker which is dead, though the ensemble does not know it yet.
        self._registered.pop(broker_id, None)

    def is_complete(self, broker_id: BrokerId, name: TopicPartition) -> bool:
        """Return whether the cluster relies on a replica to have all committed records."""
        state = self.states[name]
        return (broker_id in state.isr or broker_id in state.elr) and (broker_id, name) not in self._suspects

    def leader_in(self, topic_id: TopicId, partition: int, leader_epoch: int) -> BrokerId:
        """Return the broker that leads, or has led, a partition in a leader epoch; -1 if there was none."""
        return self._leaders.get((topic_id, partition, leader_epoch), NO_BROKER)

    def committed(self, operations: Sequence[Operation], changes: Sequence[Change]) -> None:
        """Check a transaction that the ensemble has executed."""
        self.version += 1
        for change in changes:  # what others depend on comes first
            if change.path == znodes.CONTROLLER_EPOCH and change.after is not None:
                self._controller_epoch = znodes.decode_controller_epoch(change.after.data)
            elif change.path.startswith(znodes.DELETED_TOPICS + "/") and change.before is None:
                self.deleted[topic_id_from_str(change.path.rpartition("/")[2])] = None
        for change in changes:
            if change.path.startswith(znodes.BROKER_IDS + "/"):
                epoch = -1 if change.after is None else change.after.created
                self._registered[int(change.path.rpartition("/")[2])] = epoch
            elif change.path == znodes.BROKER_EPOCHS and change.after is not None:
                self._admitted(znodes.decode_broker_epochs(change.after.data))
            elif change.path.startswith(znodes.TOPICS + "/"):
                parts = change.path.split("/")[_TOPIC_DEPTH:]
                if len(parts) == 1:
                    self._topic_changed(parts[0], change)
                elif len(parts) == 4:
                    self._state_changed(TopicPartition(parts[0], int(parts[2])), change)

    def _admitted(self, admissions: Mapping[BrokerId, Admission]) -> None:
        """Note that the controller has admitted these registrations: their replicas in an ISR are complete
        again.
        """
        for broker_id, name in list(self._suspects):
            if broker_id in admissions and admissions[broker_id].epoch == self._registered.get(broker_id):
                del self._suspects[broker_id, name]

    def _topic_changed(self, name: str, change: Change) -> None:
        if change.after is not None:
            assignment = self._assignments[name] = znodes.decode_topic(change.after.data)
            self.topic_ids[name] = assignment.topic_id
            for number in range(len(assignment.replicas)):
                state = self.states.get(TopicPartition(name, number))
                if state is not None:
                    self.states[TopicPartition(name, number)] = self._with_replicas(state, name, number)
            return
        gone = self.topic_ids.pop(name)
        del self._assignments[name]
        if gone not in self.deleted:
            self._stage.complain("deleted-without-word", f"topic {name}")

    def _with_replicas(self, state: PartitionState, name: str, number: int) -> PartitionState:
        assignment = self._assignments[name]
        moving = assignment.reassignments.get(number, znodes.Reassignment())
        return state._replace(
            replicas=assignment.replicas[number], adding=moving.adding, removing=moving.removing
        )

    def _state_changed(self, name: TopicPartition, change: Change) -> None:
        before = self.states.get(name)
        if change.after is None:
            self.states.pop(name, None)
            return
        writer = json.loads(change.after.data)["controller_epoch"]
        if writer != self._controller_epoch:
            self._stage.complain(
                "zombie-controller",
                f"{name} was changed in controller epoch {writer}, when it was {self._controller_epoch}",
            )
        if name.topic not in self._assignments:
            self._stage.complain("bad-state", f"{name} has a state, and there is no such topic")
            return
        state = znodes.decode_partition_state((), change.after)
        state = self.states[name] = self._with_replicas(state, name.topic, name.partition)
        for broker_id in state.replicas:
            if broker_id not in state.isr and broker_id not in state.elr:
                self._suspects.pop((broker_id, name), None)
        self._check_state(name, state)
        if before is not None:
            self._check_change(name, before, state)

    def _check_state(self, name: TopicPartition, state: PartitionState) -> None:
        isr, elr, replicas = set(state.isr), set(state.elr), set(state.replicas)
        needed = min(LEAST_IN_SYNC, len(replicas))
        wrong = None
        if not isr <= replicas or not elr <= replicas:
            wrong = "who is no replica is in sync"
        elif isr & elr:
            wrong = "a replica is in the ISR and in the ELR"
        elif len(isr) >= needed and elr:
            wrong = "the ELR is not empty though enough are in sync"
        elif state.leader != NO_BROKER and state.leader not in isr:
            wrong = "the leader is not in sync"
        if wrong is not None:
            self._stage.complain("bad-state", f"{name}: {wrong}: {state}")
        if state.leader != NO_BROKER:
            key = self.topic_ids[name.topic], name.partition, state.leader_epoch
            other = self._leaders.setdefault(key, state.leader)
            if other != state.leader:
                self._stage.complain(
                    "two-leaders", f"{name}: {other} and {state.leader} in one epoch: {state}"
                )

    def _check_change(self, name: TopicPartition, before: PartitionState, after: PartitionState) -> None:
        change = f"{name}: {before} -> {after}"
        if after.leader_epoch < before.leader_epoch:
            self._stage.complain("epoch-fell", change)
        if after.leader not in (before.leader, NO_BROKER) and not self._stage.is_unclean:
            candidates = {*before.isr, *before.elr}
            if candidates and after.leader not in candidates:
                self._stage.complain("unclean-election", change)
        if after.leader_epoch == before.leader_epoch:
            for broker_id in after.isr:
                if broker_id not in before.isr:
                    self.on_joined(name, broker_id, after)
