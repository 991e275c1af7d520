"""Listeners, connections, and the bytes that come and go."""
