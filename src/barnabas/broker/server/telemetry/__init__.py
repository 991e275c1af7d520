"""Metrics that clients push (KIP-714): selects the metrics for each client, and stores the values."""
