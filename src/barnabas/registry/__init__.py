"""A schema registry with Confluent's REST API that stores its state in a topic.

- `state`: the state that the topic's records describe.
- `registration`, `deletion` and `policy` decide on changes; `queries` answers. All are functions of the
  state.
- `log` writes and replays records.
- `rest` is the REST API.
- `avro`, `jsonschema` and `protobuf` have the formats of schemas.
"""
