"""Determines the subjects of a topic's schemas in a registry."""

from __future__ import annotations

import json

from barnabas.base.errors import ConfigError
from barnabas.spark.option_values import invalid_option

#: the strategies for the names of subjects, with the names of Confluent's serializers
STRATEGIES = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")


def subject_for(strategy: str, topic: str, record: str) -> str:
    """Return the subject for the values of a topic, by the naming strategy `strategy`.

    `record` is the schema's full name. Raises ConfigError if `strategy` is not in `STRATEGIES`, or needs a
    name and `record` is empty.
    """
    if strategy not in STRATEGIES:
        raise invalid_option("subject_strategy", strategy, f"choose from {', '.join(STRATEGIES)}")
    if strategy == "TopicNameStrategy":
        return f"{topic}-value"
    if not record:
        raise invalid_option("subject_strategy", strategy, "the schema has no name (JSON Schema: title)")
    return record if strategy == "RecordNameStrategy" else f"{topic}-{record}"


def record_name(format: str, schema: str, message: str = "") -> str:
    """Return the full name of the record that an Avro or JSON schema describes, or of a Protobuf message.

    The name in a JSON Schema is its title. The result is empty if the schema has no name.

    Raises:
        ConfigError: the schema is not JSON, or `message` is not a full name.
    """
    if format == "protobuf":
        if "." not in message:
            raise invalid_option(
                "message", message, "a strategy by record name needs the message's full name"
            )
        return message
    try:
        parsed = json.loads(schema)
    except ValueError as error:
        raise ConfigError(f"not a schema ({error}): {schema}") from None
    if format == "jsonschema":
        return str(parsed.get("title", ""))
    name, space = str(parsed.get("name", "")), parsed.get("namespace")
    return f"{space}.{name}" if space and "." not in name else name
