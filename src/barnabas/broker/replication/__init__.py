"""Replication: partitions that this broker leads or follows, and operations that wait for them."""
