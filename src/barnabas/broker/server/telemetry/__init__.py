"""Metrics that clients push (KIP-714): which client must push what, and the received values."""
