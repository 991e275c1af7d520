"""A schema registry with Confluent's REST API that stores its state in a topic.

`state` is the state that the topic's records describe; `registration`, `deletion` and `policy` decide on
changes and `queries` answers, all as functions of the state; `log` writes and replays records; `rest` is the
REST API. Formats of schemas live in `avro`, `jsonschema` and `protobuf`.
"""
