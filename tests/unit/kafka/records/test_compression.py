"""The codecs, other clients' forms of them, and the limit of the decompressed size."""

from __future__ import annotations

import gzip
import random
import struct
from types import SimpleNamespace

import cramjam
import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.kafka.records import (
    Compression,
    Record,
    all_records,
    check_crc,
    encode_batch,
    parse_header,
    recompress,
)
from barnabas.kafka.records.compression import ExpandsTooFarError, compress, decompress
from barnabas.kafka.records.lz4_frame import BLOCK_SIZE

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
every_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
SAMPLES = [b"", b"x", b"abc" * 50_000, bytes(range(256)) * 300]


@every_codec
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_what_is_compressed_comes_back(codec, data):
    assert decompress(codec, compress(codec, data)) == data


@every_codec
@given(data=st.binary(max_size=300))
def test_any_bytes_come_back(codec, data):
    assert decompress(codec, compress(codec, data)) == data


@every_codec
@given(data=st.binary(max_size=200))
def test_any_bytes_decompress_or_are_corrupt(codec, data):
    try:
        decompress(codec, data, limit=10_000)
    except KafkaError as error:
        assert error.code is ErrorCode.CORRUPT_MESSAGE


@every_codec
def test_a_bomb_stops_at_the_limit(codec):
    bomb = compress(codec, bytes(10_000_000))
    assert len(decompress(codec, bomb, limit=10_000_000)) == 10_000_000
    with pytest.raises(ExpandsTooFarError) as refused:
        decompress(codec, bomb, limit=9_999_999)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert "9999999" in refused.value.message


@every_codec
@pytest.mark.parametrize("cut", [1, 5])
def test_data_cut_off_is_corrupt(codec, cut):
    data = compress(codec, b"hello world" * 1000)[:-cut]
    with pytest.raises(KafkaError) as refused:
        decompress(codec, data)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert not isinstance(refused.value, ExpandsTooFarError)


def test_a_codec_that_does_not_exist_is_unsupported():
    with pytest.raises(KafkaError) as refused:
        decompress(5, b"")
    assert refused.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_lz4_blocks_are_independent_as_the_java_client_demands():
    frame = compress(Compression.LZ4, bytes(200_000))
    assert frame[:4] == b"\x04\x22\x4d\x18"
    version, independent = frame[4] >> 6, frame[4] & 0x20
    assert version == 1 and independent


@pytest.mark.parametrize("level", range(1, 18))
def test_lz4_of_any_level_is_compressed_in_short_calls_which_keep_the_gil(monkeypatch, level):
    calls = []

    class Watched:
        def __init__(self, level, **options):
            assert level <= 9  # the levels above take up to 200 ms a block
            self._compressor = cramjam.lz4.Compressor(level=level, **options)
            self.finish = self._compressor.finish

        def compress(self, data):
            calls.append(len(data))
            self._compressor.compress(data)

    library = SimpleNamespace(Compressor=Watched, compress_block=cramjam.lz4.compress_block)
    monkeypatch.setattr("barnabas.kafka.records.lz4_frame.cramjam", SimpleNamespace(lz4=library))
    data = random.Random(level).choices(b"ab", k=3 * BLOCK_SIZE + 100)
    frame = compress(Compression.LZ4, bytes(data), level)
    assert decompress(Compression.LZ4, frame) == bytes(data)
    assert frame[4] >> 6 == 1 and frame[4] & 0x20  # independent blocks
    assert calls == ([] if level == 9 else [BLOCK_SIZE] * 3 + [100])


def test_snappy_is_framed_as_xerial_does_and_a_bare_block_is_read_too():
    data = b"hello world" * 10_000
    framed = compress(Compression.SNAPPY, data)
    assert framed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_snappy_whose_next_block_lacks_its_length_is_corrupt(cut):
    framed = compress(Compression.SNAPPY, b"x" * 100)
    with pytest.raises(KafkaError) as caught:
        decompress(Compression.SNAPPY, framed + bytes(cut))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert bytes(decompress(Compression.SNAPPY, framed + framed[16:])) == b"x" * 200


@pytest.mark.parametrize("size", [8, 12, 15])
def test_snappy_that_ends_inside_its_header_is_corrupt(size):
    framed = compress(Compression.SNAPPY, b"")
    assert decompress(Compression.SNAPPY, framed[:16]) == b""
    with pytest.raises(KafkaError) as caught:
        decompress(Compression.SNAPPY, framed[:size])
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert not isinstance(caught.value, ExpandsTooFarError)


def test_snappy_streams_in_a_row_are_read_as_one_as_snappy_java_does():
    one, two = compress(Compression.SNAPPY, b"one "), compress(Compression.SNAPPY, b"two")
    assert decompress(Compression.SNAPPY, one + two) == b"one two"
    assert decompress(Compression.SNAPPY, one[:16] + two) == b"two"


@pytest.mark.parametrize("versions", [(0, 1), (-1, 1), (2, 2), (1, 0)])
def test_versions_in_the_first_header_of_snappy_are_ignored_as_in_snappy_java(versions):
    framed = compress(Compression.SNAPPY, b"one")
    assert decompress(Compression.SNAPPY, framed[:8] + struct.pack(">ii", *versions) + framed[16:]) == b"one"


def test_a_second_header_of_snappy_needs_a_version_and_all_of_its_bytes():
    framed = compress(Compression.SNAPPY, b"one")
    for header in (framed[:8] + struct.pack(">ii", 0, 1), framed[:8] + b"\0\0\0", framed[:7] + b"Y" * 9):
        with pytest.raises(KafkaError) as caught:
            decompress(Compression.SNAPPY, framed + header)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_gzip_members_in_a_row_are_read_as_one():
    assert decompress(Compression.GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


@every_codec
def test_aiokafka_reads_what_we_compress_and_we_what_it_does(codec):
    data = b"hello world" * 20_000
    name = codec.name.lower()
    assert getattr(aiokafka_codec, f"{name}_decode")(compress(codec, data)) == data
    assert decompress(codec, getattr(aiokafka_codec, f"{name}_encode")(data)) == data


@every_codec
def test_recompressing_keeps_the_records_and_everything_else_of_the_header(codec):
    records = [Record(b"k", b"v" * 100, 5), Record(None, None, 9)]
    batch = encode_batch(records, producer_id=3, producer_epoch=1, base_sequence=4, transactional=True)
    again = recompress(batch, codec)
    header = parse_header(again)
    check_crc(header, again)
    assert header.compression == codec and header.is_transactional
    assert list(all_records(again)) == list(all_records(batch))
    assert recompress(again, Compression.NONE) == batch


@pytest.mark.parametrize(
    ("name", "codec"),
    [("uncompressed", Compression.NONE), ("zstd", Compression.ZSTD), ("gzip", Compression.GZIP)],
)
def test_compressions_have_the_names_of_the_setting(name, codec):
    assert Compression.named(name) is codec


def test_producer_names_no_codec():
    with pytest.raises(ValueError, match="producer"):
        Compression.named("producer")


def test_lz4_stores_blocks_that_do_not_become_smaller():
    noise = random.Random(1).randbytes(BLOCK_SIZE)
    assert len(compress(Compression.LZ4, noise)) == len(noise) + 15
    assert len(compress(Compression.LZ4, bytes(BLOCK_SIZE))) < 1000
