"""The records in flight: poison records, acquire modes, sizes. A model test covers the rest."""

from __future__ import annotations

import sys

import pytest
from tests.work import lines_of

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.sharing.in_flight import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    InFlight,
    Limits,
    ReadBatch,
    check_acknowledgements,
)


def batch_of(*bounds):
    return [ReadBatch(first, last) for first, last in bounds]


def acquire(flight, batches, member="a", until=10.0, max_records=500, **options):
    return flight.acquire(
        member, flight.next_offset, batches, until=until, max_records=max_records, **options
    )


def store(flight):
    write = flight.begin_write()
    flight.written()
    return write


def test_batches_stay_whole_beyond_the_limit_of_records():
    flight = InFlight(0, Limits())
    assert acquire(flight, batch_of((0, 4), (5, 9), (10, 14)), max_records=6) == [(0, 9, 1)]
    assert flight.end == 10


def test_a_strict_limit_divides_a_batch_and_the_rest_is_next():
    flight = InFlight(0, Limits())
    assert acquire(flight, batch_of((0, 4), (5, 9)), max_records=6, is_strict=True) == [(0, 5, 1)]
    assert flight.next_offset == 6
    assert acquire(flight, batch_of((5, 9)), max_records=6, is_strict=True) == [(6, 9, 1)]


def test_the_size_of_a_part_is_counted_in_whole_batches():
    flight = InFlight(0, Limits())
    assert acquire(flight, batch_of((0, 1), (2, 3), (4, 5)), batch_size=3) == [(0, 3, 1), (4, 5, 1)]


def test_a_member_that_lost_its_lock_hears_that_another_member_has_finished_the_record():
    flight = InFlight(0, Limits())
    acquire(flight, batch_of((0, 0), (1, 2)), member="a", until=1.0)
    flight.expire(1.0)
    acquire(flight, batch_of((0, 0), (1, 2)), member="b")
    flight.acknowledge("b", [Acknowledgement(0, 1, [ACCEPT])], until=10.0)
    store(flight)
    assert flight.start == 2
    with pytest.raises(KafkaError) as error:
        flight.acknowledge("a", [Acknowledgement(0, 0, [ACCEPT])], until=10.0)
    assert error.value.code == ErrorCode.INVALID_RECORD_STATE
    assert flight.acknowledge("b", [Acknowledgement(1, 2, [ACCEPT])], until=10.0)


def test_a_member_acknowledges_a_record_while_no_record_is_in_flight():
    """Apache Kafka gives this error, too. While others are in flight, it is INVALID_REQUEST."""
    flight = InFlight(0, Limits())
    with pytest.raises(KafkaError) as error:
        flight.acknowledge("a", [Acknowledgement(0, 0, [ACCEPT])], until=10.0)
    assert error.value.code is ErrorCode.INVALID_RECORD_STATE
    acquire(flight, batch_of((0, 4)))
    with pytest.raises(KafkaError) as error:
        flight.acknowledge("a", [Acknowledgement(5, 5, [ACCEPT])], until=10.0)
    assert error.value.code is ErrorCode.INVALID_REQUEST


def test_acknowledgements_of_records_that_the_log_has_deleted_are_ignored():
    flight = InFlight(0, Limits())
    acquire(flight, batch_of((0, 4)))
    flight.start_moved(3)
    assert not flight.acknowledge("a", [Acknowledgement(0, 2, [ACCEPT])], until=10.0)


def test_a_batch_that_is_acknowledged_whole_costs_one_range():
    flight = InFlight(0, Limits())
    acquire(flight, batch_of((0, 999)))
    acquire(flight, batch_of((1000, 1999)))
    assert len(flight.ranges()) == 2
    flight.acknowledge("a", [Acknowledgement(1000, 1999, [ACCEPT])], 10.0)
    assert store(flight).batches == ((1000, 1999, 2, 1),)
    assert len(flight.ranges()) == 2


def test_a_record_that_no_member_can_process_is_alone_at_its_last_delivery():
    """500 records are delivered again and again. The last attempts deliver fewer at a time, finally one."""
    flight = InFlight(0, Limits(deliveries=5))
    largest: dict[int, int] = {}
    finished = False
    while not finished:
        parts = acquire(flight, batch_of((0, 499)))
        delivered = sum(last - first + 1 for first, last, _ in parts)
        for _, _, count in parts:
            largest[count] = max(largest.get(count, 0), delivered)
        flight.acknowledge("a", [Acknowledgement(first, last, [RELEASE]) for first, last, _ in parts], 10.0)
        store(flight)
        finished = flight.start == 500
    assert largest == {1: 500, 2: 500, 3: 500, 4: 250, 5: 1}


def test_good_records_are_saved_from_the_one_that_kills_its_member():
    flight = InFlight(0, Limits(deliveries=5))
    while flight.start < 100:
        parts = acquire(flight, batch_of((0, 99)))
        if any(first <= 42 <= last for first, last, _ in parts):
            flight.expire(11.0)  # the member dies, and acknowledges nothing
        else:
            flight.acknowledge(
                "a", [Acknowledgement(first, last, [ACCEPT]) for first, last, _ in parts], 10.0
            )
        states = {o: r.state for r in flight.ranges() for o in range(r.first, r.last + 1)}
        write = flight.begin_write()
        lost = [o for b in write.batches if b[2] == 4 for o in range(b[0], b[1] + 1)]
        assert set(lost) <= {42}, states
        flight.written()


def test_redelivered_records_are_not_mixed_with_throttled_ones():
    flight = InFlight(0, Limits(deliveries=5))
    acquire(flight, batch_of((0, 3)))
    for _ in range(3):
        flight.acknowledge("a", [Acknowledgement(2, 3, [RELEASE])], 10.0)
        store(flight)
        acquire(flight, batch_of((0, 3), (4, 5)), max_records=1)
    flight.acknowledge("a", [Acknowledgement(0, 0, [RELEASE])], 10.0)
    flight.expire(11.0)
    store(flight)
    assert acquire(flight, batch_of((0, 3), (4, 5)))[0][:2] == (0, 1)


def test_a_gap_needs_no_acknowledgement_and_holds_no_lock():
    flight = InFlight(0, Limits(record_locks=4))
    assert acquire(flight, batch_of((0, 1), (1000, 1001))) == [(0, 1, 1), (1000, 1001, 1)]
    flight.acknowledge("a", [Acknowledgement(0, 1, [ACCEPT])], 10.0)
    store(flight)
    assert flight.start == 1000


def test_gaps_within_a_batch_are_acknowledged_by_the_member():
    flight = InFlight(0, Limits())
    acquire(flight, batch_of((0, 3)))
    flight.acknowledge("a", [Acknowledgement(0, 3, [ACCEPT, GAP, GAP, ACCEPT])], 10.0)
    assert store(flight) == (4, 0, ())
    assert flight.start == flight.end == 4


def test_a_renewal_is_not_stored():
    flight = InFlight(0, Limits())
    acquire(flight, batch_of((0, 3)), until=10.0)
    assert not flight.acknowledge("a", [Acknowledgement(1, 2, [RENEW])], 20.0)
    assert not flight.is_dirty
    flight.expire(10.0)
    assert [(r.first, r.last, r.state) for r in flight.ranges()] == [(0, 0, 0), (1, 2, 1), (3, 3, 0)]


@pytest.mark.parametrize(
    "wrong",
    [
        [Acknowledgement(-1, 0, [ACCEPT])],
        [Acknowledgement(3, 2, [ACCEPT])],
        [Acknowledgement(0, 1, [])],
        [Acknowledgement(0, 2, [ACCEPT, ACCEPT])],
        [Acknowledgement(0, 0, [5])],
        [Acknowledgement(0, 1, [ACCEPT]), Acknowledgement(1, 2, [ACCEPT])],
        [Acknowledgement(2, 3, [ACCEPT]), Acknowledgement(0, 1, [ACCEPT])],
    ],
)
def test_acknowledgements_that_contradict_themselves_are_refused(wrong):
    with pytest.raises(KafkaError) as error:
        check_acknowledgements(wrong)
    assert error.value.code is ErrorCode.INVALID_REQUEST


def test_one_wrong_acknowledgement_undoes_none_since_none_was_made():
    flight = InFlight(0, Limits())
    acquire(flight, batch_of((0, 1)))
    acquire(flight, batch_of((2, 3)), member="b")
    with pytest.raises(KafkaError) as error:
        flight.acknowledge("a", [Acknowledgement(0, 1, [ACCEPT]), Acknowledgement(2, 3, [ACCEPT])], 10.0)
    assert error.value.code is ErrorCode.INVALID_RECORD_STATE
    assert not flight.is_dirty
    assert [each.target for each in flight.ranges()] == [None, None]


def test_a_range_in_flight_takes_less_than_200_bytes():
    base = 5_000_000_000  # no small integer, which Python shares
    flight = InFlight(base, Limits())
    for offset in range(base, base + 2000):
        acquire(flight, [ReadBatch(offset, offset)], until=1000.5)
    ranges = flight.ranges()
    assert len(ranges) == 2000
    each = ranges[1000]
    own = sys.getsizeof(each) + sys.getsizeof(each.first) + sys.getsizeof(each.last)
    deadline = sys.getsizeof(each.until)
    assert own + deadline + sys.getsizeof(ranges) / len(ranges) < 200


def test_two_thousand_alternating_answers_become_few_ranges_again():
    flight = InFlight(0, Limits())
    acquire(flight, batch_of((0, 1999)))
    types = [ACCEPT, RELEASE] * 1000
    flight.acknowledge("a", [Acknowledgement(0, 1999, types)], 10.0)
    assert len(store(flight).batches) == 1999  # the first one moves the start offset
    acquire(flight, batch_of((0, 1999)), max_records=5000)
    flight.acknowledge("a", [Acknowledgement(o, o, [ACCEPT]) for o in range(1, 2000, 2)], 10.0)
    store(flight)
    assert not flight.ranges() and flight.start == 2000


def test_a_look_for_due_dead_letters_costs_by_what_is_due():
    """Every other record is still locked, so each record is a range."""

    def cost(in_flight: int) -> int:
        flight = InFlight(0, Limits(record_locks=5000, has_dead_letters=True))
        acquire(flight, batch_of((0, in_flight - 1)))
        types = [RENEW, ACCEPT] * (in_flight // 2)
        flight.acknowledge("a", [Acknowledgement(1, in_flight - 1, types[1:])], 10.0)
        flight.acknowledge("a", [Acknowledgement(6, 6, [REJECT])], 10.0)
        store(flight)
        assert len(flight.ranges()) == in_flight
        flight.due_letters()
        lines = lines_of(lambda: flight.due_letters())
        assert flight.due_letters() == [(6, 6, 1, True)]
        return lines

    assert cost(2000) <= cost(20)


def test_acquiring_costs_no_more_while_many_dead_letters_wait():
    """Every other record waits for its dead letter, so each record before the next one is a range."""

    def cost(waiting: int) -> int:
        flight = InFlight(0, Limits(record_locks=5000, has_dead_letters=True))
        acquire(flight, batch_of((0, waiting - 1)))
        flight.acknowledge("a", [Acknowledgement(0, waiting - 1, [REJECT, ACCEPT] * (waiting // 2))], 10.0)
        store(flight)
        assert len(flight.ranges()) == waiting
        assert not flight.is_full and flight.next_offset == waiting
        new = [ReadBatch(offset, offset) for offset in range(waiting, waiting + 100)]
        lines = lines_of(lambda: acquire(flight, new) and flight.is_full)
        assert flight.end == waiting + 100
        return lines

    assert cost(2000) <= cost(20)
