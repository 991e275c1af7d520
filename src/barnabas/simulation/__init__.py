"""Virtual time, a disk that fails, threads that are none: whole brokers in one process, from a seed."""
