"""A large frame is received into its final buffer, and takes memory as its bytes arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.kafka.protocol.framing import FrameDecoder
from barnabas.kafka.protocol.large_frame import LARGE, LargeFrame

SIZE = 20 * LARGE


def content(size):
    return bytes(range(251)) * (size // 251 + 1)


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("piece", [1000, LARGE, SIZE])
def test_its_bytes_are_received_whatever_the_pieces(trusted, piece):
    data = content(SIZE)[:SIZE]
    frame = LargeFrame(SIZE, data[:10], trusted=trusted)
    whole = None
    while whole is None:
        into = frame.writable()
        count = min(len(into), piece)
        into[:count] = data[frame.filled : frame.filled + count]
        whole = frame.received(count)  # while a view of it still exists, as in the event loop
    assert whole == data
    assert frame.missing == 0


def test_memory_follows_what_was_received():
    frame = LargeFrame(1 << 30, b"x" * LARGE)
    while frame.filled < 5 * LARGE:
        assert len(frame.writable()) <= 4 * frame.filled
        assert frame.received(1000) is None
    assert len(LargeFrame(1 << 30, b"").writable()) <= 4 * LARGE


@given(st.lists(st.sampled_from([0, 1, 100, LARGE - 1, LARGE, LARGE + 1, 3 * LARGE]), max_size=5), st.data())
def test_a_decoder_whose_large_frames_nobody_takes_away_copies_them(sizes, data):
    bodies = [content(size)[:size] for size in sizes]
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    decoder = FrameDecoder(1 << 30)
    frames = []
    while stream:
        count = data.draw(st.sampled_from([1, 3, 7, 5000, 2 * LARGE, 1 << 20]))
        count = max(count, len(stream) // 50)
        frames += decoder.feed(stream[:count])
        stream = stream[count:]
    assert frames == bodies
    assert decoder.pending == 0
