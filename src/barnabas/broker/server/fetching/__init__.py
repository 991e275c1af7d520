"""Fetch sessions (KIP-227), and the reads for a Fetch request."""
