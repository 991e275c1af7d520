"""The broker as a process: listeners, sessions, the request handlers, and the composition root."""
