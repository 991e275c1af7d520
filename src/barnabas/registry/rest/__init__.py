"""Confluent's REST API over aiohttp, one module for each group of URLs."""
