"""A schema registry that speaks Confluent's REST API and keeps all it knows in a topic.

`state` is what the topic's records add up to; `registration`, `deletion`, `policy` decide on changes and
`queries` answers, all as functions of the state; `log` writes and replays; `http` is the way in. Formats of
schemas live in `avro`, `jsonschema` and `protobuf`.
"""
