"""Replication: partitions as their leader or follower holds them, and operations that wait for partitions."""
