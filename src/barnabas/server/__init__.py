"""The broker as a process: listeners, sessions, the request handlers, and what puts the rooms together."""
