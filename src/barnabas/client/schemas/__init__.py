"""Registered schemas: finds them in a registry, encodes values to payloads, and decodes payloads.

A payload has Confluent's wire format: a zero byte, the schema's id in four bytes, then the value in the
schema's format.
"""
