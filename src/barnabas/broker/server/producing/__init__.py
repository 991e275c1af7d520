"""Produce requests of the usual shape, answered from their bytes."""
