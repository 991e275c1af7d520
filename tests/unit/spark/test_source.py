"""The modules that every Spark session on a machine imports."""

from __future__ import annotations

import subprocess
import sys

from pyspark.sql.datasource import DataSource

from pyspark_barnabas import DefaultSource


def test_the_package_spark_looks_for_names_the_data_source() -> None:
    assert issubclass(DefaultSource, DataSource)
    assert DefaultSource.name() == "barnabas"


def test_sessions_that_do_not_use_the_data_source_pay_little_for_it() -> None:
    heavy = "[name for name in ('pyarrow', 'pandas', 'confluent_kafka') if name in sys.modules]"
    code = f"import sys, pyspark_barnabas; print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
