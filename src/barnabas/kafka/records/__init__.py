"""Record batches: their headers, checksums, compression and records (message format 2)."""

from barnabas.kafka.records.batch import BatchHeader, batches, check_crc, parse_header
from barnabas.kafka.records.builder import (
    all_records,
    batch_keys_and_values,
    batch_records,
    encode_batch,
    recompress,
)
from barnabas.kafka.records.compression import Compression
from barnabas.kafka.records.record import Header, Record

__all__ = [
    "BatchHeader",
    "Compression",
    "Header",
    "Record",
    "all_records",
    "batch_keys_and_values",
    "batch_records",
    "batches",
    "check_crc",
    "encode_batch",
    "parse_header",
    "recompress",
]
