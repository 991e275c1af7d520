"""The Kafka wire protocol without I/O: it decodes bytes to messages, and encodes messages to bytes.

- `schema`: how a class declares a message.
- `messages/`: one module for each API; `kafka/records/`: the records that coordinators store.
- `decoder` and `encoder` compile declarations; `codec` uses them.
- `registry` finds an API's messages by its number.
- `framing` cuts a stream into requests and makes frames of responses.
"""
