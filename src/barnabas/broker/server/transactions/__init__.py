"""The tasks of a partition's leader in transactions: to admit writes, and to append transaction markers."""
