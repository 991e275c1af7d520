"""The common parts of several APIs' responses."""
