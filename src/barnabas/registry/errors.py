"""The errors of a registry, with the codes of Confluent's REST API and their messages.

Clients react to the code, not to the message. Its first three digits are the HTTP status.
"""

from __future__ import annotations

from enum import IntEnum

from barnabas.base.errors import BarnabasError


class Code(IntEnum):
    """Error codes of https://docs.confluent.io/platform/current/schema-registry/develop/api.html"""

    SUBJECT_NOT_FOUND = 40401
    VERSION_NOT_FOUND = 40402
    SCHEMA_NOT_FOUND = 40403
    SUBJECT_SOFT_DELETED = 40404
    SUBJECT_NOT_SOFT_DELETED = 40405
    VERSION_SOFT_DELETED = 40406
    VERSION_NOT_SOFT_DELETED = 40407
    COMPATIBILITY_NOT_CONFIGURED = 40408
    MODE_NOT_CONFIGURED = 40409
    INCOMPATIBLE_SCHEMA = 409
    INVALID_SCHEMA = 42201
    INVALID_VERSION = 42202
    INVALID_COMPATIBILITY_LEVEL = 42203
    INVALID_MODE = 42204
    OPERATION_NOT_PERMITTED = 42205
    REFERENCE_EXISTS = 42206
    ID_DOES_NOT_MATCH = 42207
    INVALID_SUBJECT = 42208
    SCHEMA_TOO_LARGE = 42209
    STORE_ERROR = 50001
    OPERATION_TIMEOUT = 50002


class RegistryError(BarnabasError):
    """The registry rejects a request. The client receives `code` and the message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = int(code)

    @property
    def status(self) -> int:
        """Return the HTTP status."""
        return self.code if self.code < 1000 else self.code // 100


class InvalidSchemaError(RegistryError):
    """The registry cannot accept a schema. The message has the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(Code.INVALID_SCHEMA, f"Invalid schema: {reason}")


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(Code.SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def version_not_found(version: int | str) -> RegistryError:
    return RegistryError(Code.VERSION_NOT_FOUND, f"Version {version} not found.")


def schema_not_found(id_: int | str | None = None) -> RegistryError:
    return RegistryError(Code.SCHEMA_NOT_FOUND, f"Schema {id_} not found" if id_ else "Schema not found")


def not_permitted(message: str) -> RegistryError:
    return RegistryError(Code.OPERATION_NOT_PERMITTED, message)
