"""Handles differences between versions of PySpark: 4.1 has no admission control for Python data sources.

In PySpark 4.1 each micro-batch reads all present records, and Spark does not tell the source where a
micro-batch begins (`barnabas.spark.stream_reader.UnlimitedStreamReader`).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyspark import __version__ as _version

from barnabas.base.errors import ConfigError

__all__ = [
    "AVAILABLE_NOW",
    "HAS_LIMITS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
    "require_limits",
]

#: Whether the installed PySpark has admission control for Python data sources (4.2 and later).
HAS_LIMITS = find_spec("pyspark.sql.streaming.datasource") is not None

#: Settings of a session, for the trigger availableNow. Without them PySpark 4.1 runs only one micro-batch.
#: Then a window that its records close is not written before the next run.
AVAILABLE_NOW = {} if HAS_LIMITS else {"spark.sql.streaming.triggerAvailableNowWrapper.enabled": "true"}

#: The options that need admission control.
LIMITS = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")

if TYPE_CHECKING or HAS_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """The base class of the limits of a micro-batch."""

    class ReadAllAvailable(ReadLimit):
        """A micro-batch without a limit: it reads all available records."""

    ReadMaxBytes = ReadMaxRows = ReadMinRows = ReadLimit

    class SupportsTriggerAvailableNow:
        """Replaces PySpark's mixin of this name, which PySpark 4.1 lacks.

        PySpark 4.1 itself determines where a run with the trigger availableNow ends.
        """


def require_limits(given: Mapping[str, str]) -> None:
    """Check that the installed PySpark supports the options of a stream.

    Raises:
        ConfigError: an option limits a micro-batch, which PySpark 4.1 does not support.
    """
    lower = {name.lower(): value for name, value in given.items()}
    for name in () if HAS_LIMITS else LIMITS:
        if name.lower() in lower:
            raise ConfigError(
                f"option {name}={lower[name.lower()]} is not allowed: PySpark {_version} cannot limit what a "
                "micro-batch of a Python data source reads; remove it, or install PySpark 4.2 or later"
            )
