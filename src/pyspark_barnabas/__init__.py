"""Makes `format("barnabas")` work: PySpark imports every package named ``pyspark_*``."""

from barnabas.spark.source import BarnabasDataSource as DefaultSource

__all__ = ["DefaultSource"]
