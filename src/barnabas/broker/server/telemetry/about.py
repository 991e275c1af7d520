"""The attributes of a client that ``match`` of a client-metrics resource may use."""

from __future__ import annotations

from barnabas.base.types import topic_id_to_str
from barnabas.broker.server.requests.context import RequestContext


def attributes_of(client_instance_id: bytes, context: RequestContext) -> dict[str, str]:
    """A client's attributes; those that are not known are left out."""
    connection = context.connection
    found = {
        "client_instance_id": topic_id_to_str(client_instance_id),
        "client_id": context.client_id,
        "client_software_name": connection.client_software_name,
        "client_software_version": connection.client_software_version,
        "client_source_address": connection.client_host,
        "client_source_port": str(connection.client_port) if connection.client_port else "",
    }
    return {name: text for name, text in found.items() if text}
