"""Nodes are decoded to the values that were encoded."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.image import PartitionState, TopicImage
from barnabas.broker.metadata.store import StoreNode

BROKERS = st.lists(st.integers(0, 9), max_size=4, unique=True).map(tuple)
STATES = st.builds(
    PartitionState,
    replicas=st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True).map(tuple),
    isr=BROKERS,
    leader=st.integers(-1, 9),
    leader_epoch=st.integers(0, 2**31 - 1),
    partition_epoch=st.integers(0, 2**31 - 1),
    elr=BROKERS,
    last_known_elr=BROKERS,
    recovering=st.booleans(),
    adding=BROKERS,
    removing=BROKERS,
    is_damaged=st.just(False),
)


@given(st.lists(STATES, max_size=5))
def test_a_topic_is_read_as_it_was_written(states: list[PartitionState]) -> None:
    topic = TopicImage("orders", bytes(16), tuple(states))
    assignment = znodes.decode_topic(znodes.encode_topic(znodes.assignment_of(topic)))
    assert assignment.topic_id == topic.id
    read = []
    for number, (replicas, state) in enumerate(zip(assignment.replicas, states, strict=True)):
        node = StoreNode(znodes.encode_partition_state(state, 3), state.partition_epoch, 1)
        moving = assignment.reassignments.get(number, znodes.Reassignment())
        read.append(znodes.decode_partition_state(replicas, node, moving))
    assert read == states


def test_a_state_written_before_there_were_eligible_leaders_is_read() -> None:
    data = b'{"version":1,"controller_epoch":1,"leader":1,"leader_epoch":4,"isr":[1]}'
    state = znodes.decode_partition_state((1,), StoreNode(data, 7, 1))
    assert state == PartitionState((1,), isr=(1,), leader=1, leader_epoch=4, partition_epoch=7)
