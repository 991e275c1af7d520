"""The options of `barnabas produce` that name registered schemas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from barnabas.cli.input_records import InputForm

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--registry", metavar="URL", help="The schema registry of --value-schema and --key-schema."),
    click.option(
        "--registry-login",
        is_flag=True,
        help="Log in to the registry as to the cluster, and trust the same authorities.",
    ),
    click.option(
        "--value-schema", metavar="SCHEMA", help="Values are JSON, which this registered schema encodes."
    ),
    click.option(
        "--value-message",
        metavar="NAME",
        default="",
        help="The message of a Protobuf schema; its first one if none is named.",
    ),
    click.option(
        "--key-schema", metavar="SCHEMA", help="Keys are JSON, which this registered schema encodes."
    ),
    click.option("--key-message", metavar="NAME", default="", help="As --value-message, for keys."),
)


def schema_options(function: F) -> F:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


class Schemas(NamedTuple):
    """The values of the options."""

    registry: str | None
    has_login: bool
    value: str | None
    value_message: str
    key: str | None
    key_message: str

    def check(self, *, has_keys: bool) -> None:
        """Raise click.UsageError if an option lacks the one that it needs."""
        for name, schema, message in (
            ("value", self.value, self.value_message),
            ("key", self.key, self.key_message),
        ):
            if schema is not None and self.registry is None:
                raise click.UsageError(
                    f"--{name}-schema needs --registry: the URL of the registry that has it"
                )
            if message and schema is None:
                raise click.UsageError(
                    f"--{name}-message needs --{name}-schema: the schema that has the message"
                )
        if (self.registry is not None or self.has_login) and self.value is None and self.key is None:
            raise click.UsageError("--registry needs --value-schema or --key-schema")
        if self.key is not None and not has_keys:
            raise click.UsageError("--key-schema needs keys: add --key, --key-separator or --json")

    def add_to(self, form: InputForm, servers: str) -> InputForm:
        """Return the form of the input with the encoders of the schemas.

        Raises:
            SchemaNameError, RegistryError, SchemaError, ConfigError: the registry does not have a schema, or
                it cannot be used.
        """
        if self.registry is None:
            return form
        from barnabas.client.schemas.codec import Encoder
        from barnabas.client.schemas.registered import find
        from barnabas.client.schemas.registry import SchemaRegistry
        from barnabas.client.servers import servers_of

        registry = SchemaRegistry(self.registry, servers_of(servers, {}) if self.has_login else None)
        value, key = (
            None if schema is None else Encoder(find(registry, schema)[0], message, path)
            for schema, message, path in (
                (self.value, self.value_message, "value"),
                (self.key, self.key_message, "key"),
            )
        )
        return form._replace(value=value, key=key)
