"""Confluent's REST API over aiohttp, one file a group of addresses."""
