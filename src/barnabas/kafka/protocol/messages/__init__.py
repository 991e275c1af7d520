"""Requests and responses: one module per API, with the API's name.

Names, order and defaults of the fields are those of the protocol specification, versions those that Apache
Kafka 4.2 serves. A module's docstring lists the changes in each version.
"""
