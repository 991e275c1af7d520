"""Marks for tests of features that PySpark 4.1 lacks: `docs/use/spark.md` has the table."""

from __future__ import annotations

import pytest

from barnabas.spark.pyspark_versions import HAS_LIMITS

NEEDS_LIMITS = pytest.mark.skipif(not HAS_LIMITS, reason="PySpark 4.1 has no limits of a micro-batch")
