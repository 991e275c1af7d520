"""One partition's log on disk, in Apache Kafka's format."""

from barnabas.storage.cleaning import Cleaning, CleaningCancelled
from barnabas.storage.dirtiness import Dirtiness, dirtiness
from barnabas.storage.log import AppendInfo, FetchedRecords, PartitionLog
from barnabas.storage.open_files import ColdRead, OpenFiles
from barnabas.storage.producers import Origin, Producer
from barnabas.storage.tasks import Flush, Removal, Replacement, TreeRemoval
from barnabas.storage.throttle import Throttle
from barnabas.storage.timestamps import LongSearch, OffsetAtTimestamp
from barnabas.storage.transaction_index import AbortedTransaction
from barnabas.storage.validation import (
    InvalidRecords,
    LongValidation,
    RecordError,
    ValidBatch,
    validate_batch,
)

__all__ = [
    "AbortedTransaction",
    "AppendInfo",
    "Cleaning",
    "CleaningCancelled",
    "ColdRead",
    "Dirtiness",
    "FetchedRecords",
    "Flush",
    "InvalidRecords",
    "LongSearch",
    "LongValidation",
    "OffsetAtTimestamp",
    "OpenFiles",
    "Origin",
    "PartitionLog",
    "Producer",
    "RecordError",
    "Removal",
    "Replacement",
    "Throttle",
    "TreeRemoval",
    "ValidBatch",
    "dirtiness",
    "validate_batch",
]
