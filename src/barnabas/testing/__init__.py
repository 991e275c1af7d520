"""pytest fixtures and helpers to run a broker in tests."""
