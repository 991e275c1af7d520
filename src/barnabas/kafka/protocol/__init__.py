"""The Kafka wire protocol without I/O: it decodes bytes to messages, and encodes messages to bytes.

- `schema`: how a class declares a message.
- `messages/`: one module for each API; `records/`: the keys and values that coordinators store in topics.
- `decoder` and `encoder` compile declarations to functions; `codec` calls these functions.
- `registry` finds an API's messages by its number.
- `framing` cuts a stream into requests and makes frames of responses.
"""
