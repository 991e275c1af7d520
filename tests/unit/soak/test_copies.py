"""A record that is in the log twice, because of the broker, or because a client raised its epoch."""

from __future__ import annotations

import pytest
from soak.checker import sift
from soak.checker.findings import Finding
from soak.copies import with_epochs

from barnabas.kafka.records import Record, encode_batch

PLACE = ["events", 0]


def batch(offset, epoch):
    data = bytearray(
        encode_batch([Record(b"k", b"v", 1)], producer_id=7, producer_epoch=epoch, base_sequence=0)
    )
    data[:8] = offset.to_bytes(8, "big")
    return bytes(data)


@pytest.mark.parametrize(
    ("epochs", "is_excused"),
    [((0, 1), True), ((0, 0), False), ((1,), False)],
    ids=["raised", "same", "unknown"],
)
def test_only_copies_of_different_epochs_are_the_clients_own(tmp_path, epochs, is_excused):
    folder = tmp_path / "broker-1/data/events-0"
    folder.mkdir(parents=True)
    (folder / "0.log").write_bytes(b"".join(batch(offset, epoch) for offset, epoch in enumerate(epochs)))
    finding = Finding(
        "duplicate", "r is in events-0 2 times", {"offsets": [0, 1], "partition": PLACE}, "confluent"
    )
    unexcused, excused = sift(with_epochs([finding], tmp_path))
    assert (len(unexcused), len(excused)) == ((0, 1) if is_excused else (1, 0))


@pytest.mark.parametrize(
    ("log", "is_excused"),
    [
        ({0: 5, 2: 5, 3: 6}, True),
        ({0: 5, 1: 5, 2: 5, 3: 6}, False),
        ({0: 5, 2: 5, 3: 5}, False),
        ({0: 5, 3: 6}, False),
    ],
    ids=["the first copy is gone", "nothing is gone", "of one epoch", "not in the log"],
)
def test_order_is_the_clients_own_where_compaction_removed_the_first_copy(tmp_path, log, is_excused):
    folder = tmp_path / "broker-1/data/events-0"
    folder.mkdir(parents=True)
    (folder / "0.log").write_bytes(b"".join(batch(offset, epoch) for offset, epoch in log.items()))
    evidence = {"offset": 2, "the other's": 3, "partition": PLACE}
    finding = Finding("reordered", "r was sent after q and lies before it", evidence, "confluent")
    unexcused, excused = sift(with_epochs([finding], tmp_path))
    assert (len(unexcused), len(excused)) == ((0, 1) if is_excused else (1, 0))
