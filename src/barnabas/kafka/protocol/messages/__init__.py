"""Requests and responses: one module per API, with the API's name.

The fields have the names, the order and the defaults of the protocol specification. The versions are the ones
that Apache Kafka 4.2 serves. A module's docstring lists the changes in each version.
"""
