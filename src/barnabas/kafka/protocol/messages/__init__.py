"""Requests and responses, one module an API, named after it.

Names, order and defaults of the fields are those of the protocol specification, versions those that Apache
Kafka 4.2 serves. A module's docstring says what the versions brought.
"""
