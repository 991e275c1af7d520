"""A schema registry with Confluent's REST API that stores its state in a topic.

- `state`: the state that the topic's records describe.
- `registration`, `deletion` and `policy` decide which records a change writes. `queries` finds schemas.
  All are functions of the state, without I/O.
- `log` writes and replays records.
- `rest` is the REST API.
- `avro`, `jsonschema` and `protobuf` parse and compare schemas of these formats.
"""
