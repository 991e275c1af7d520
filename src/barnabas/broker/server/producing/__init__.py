"""Answers most Produce requests directly from their bytes, without decoding them."""
