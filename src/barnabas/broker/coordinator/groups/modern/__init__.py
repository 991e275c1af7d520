"""Common parts of consumer groups and share groups: the coordinator assigns their partitions (KIP-848)."""
