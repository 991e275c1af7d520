"""Replication: a partition as its leader or a follower holds it, and the operations that wait for it."""
