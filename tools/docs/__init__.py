"""Generates the reference pages and the drawings of the packages from the code."""
