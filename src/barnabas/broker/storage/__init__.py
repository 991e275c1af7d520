"""One partition's log on disk, in Apache Kafka's format."""

from barnabas.broker.storage.cleaning import Cleaning, CleaningCancelled
from barnabas.broker.storage.dirtiness import Dirtiness, dirtiness
from barnabas.broker.storage.log import AppendInfo, PartitionLog
from barnabas.broker.storage.open_files import ColdRead, OpenFiles
from barnabas.broker.storage.producers import Origin, Producer
from barnabas.broker.storage.reading import FetchedRecords
from barnabas.broker.storage.tasks import Flush, Removal, Replacement, TreeRemoval
from barnabas.broker.storage.throttle import Throttle
from barnabas.broker.storage.timestamps import LongSearch, OffsetAtTimestamp
from barnabas.broker.storage.transaction_index import AbortedTransaction
from barnabas.broker.storage.validation import (
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
