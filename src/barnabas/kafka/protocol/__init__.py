"""The Kafka wire protocol without any I/O: bytes in, messages out, and back.

`schema` is how a message is declared, `messages/` holds one module an API, `kafka/records/` what coordinators
store; `decoder` and `encoder` compile declarations and `codec` uses them; `registry` finds an API's messages
by its number; `framing` cuts a stream into requests and makes frames of responses.
"""
