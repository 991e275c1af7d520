"""Listeners, connections, and the bytes that they receive and send."""
