"""Fetch sessions (KIP-227) and the attempts to serve a fetch."""
