"""Records of `Pulse` that are read back: each once and in order."""

from __future__ import annotations

from demo.readback import Readback, pulse_value


def read(*pulses: tuple[int, int]) -> Readback:
    """Return a reader that has read records, each a partition and a number, written
    at 10 s and read at 12 s.
    """
    readback = Readback("nowhere:1", "pulse", 2)
    for partition, number in pulses:
        readback.take(partition, pulse_value(number, 10.0), 12.0)
    return readback


def test_each_partition_has_its_own_order() -> None:
    readback = read((0, 0), (1, 0), (1, 1), (0, 1))
    assert readback.judge(4) == ""
    assert readback.waits == [2.0] * 4


def test_a_pulse_that_is_missing_is_named() -> None:
    assert read((0, 0), (0, 2), (0, 3)).judge(3) == "pulse-0 has pulse 2 where 1 was expected"


def test_a_pulse_that_comes_twice_is_named() -> None:
    assert read((1, 0), (1, 0)).judge(1) == "pulse-1 has pulse 0 where 1 was expected"


def test_pulses_missing_at_the_end_are_counted() -> None:
    assert read((0, 0), (1, 0)).judge(3) == "2 of 3 were read"
