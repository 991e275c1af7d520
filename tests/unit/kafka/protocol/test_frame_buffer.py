"""Frames received in place are those of a copying decoder, for any division of the stream."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import ProtocolError
from barnabas.kafka.protocol.frame_buffer import FrameBuffer


def feed(buffer, data, sizes):
    """Return the frames in `data`, received in pieces of at most `sizes` bytes, in turn."""
    frames, position, turn = [], 0, 0
    while position < len(data):
        into = buffer.writable()
        assert len(into)
        size = min(len(into), sizes[turn % len(sizes)], len(data) - position)
        turn += 1
        into[:size] = data[position : position + size]
        position += size
        frames += buffer.received(size)  # while a view of it still exists, as in the event loop
    return frames


def framed(*sizes):
    bodies = [bytes((n + size) % 251 for n in range(size)) for size in sizes]
    return bodies, b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


@given(
    st.lists(st.sampled_from([0, 1, 3, 100, 8191, 8192, 8193, 16_380, 16_384, 200_000]), max_size=6),
    st.lists(st.sampled_from([1, 2, 5, 1000, 65_536, 1 << 20]), min_size=1, max_size=4).filter(
        lambda sizes: max(sizes) > 5
    ),
)
def test_the_frames_are_whole_and_in_order(sizes, pieces):
    bodies, data = framed(*sizes)
    assert feed(FrameBuffer(1 << 20), data, pieces) == bodies


@pytest.mark.parametrize("size", [-1, 101])
def test_a_size_that_is_not_allowed_is_refused(size):
    with pytest.raises(ProtocolError, match="0 to 100 are allowed"):
        feed(FrameBuffer(100), size.to_bytes(4, "big", signed=True), [4])
