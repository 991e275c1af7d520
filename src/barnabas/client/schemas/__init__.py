"""Registered schemas: ask a registry for them, and turn values into payloads and back.

A payload has Confluent's wire format: a zero byte, the schema's id in four bytes, then the value in the
schema's format.
"""
