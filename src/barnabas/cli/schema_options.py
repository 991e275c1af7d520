"""The options of `barnabas produce` for registered schemas."""

from __future__ import annotations

from typing import NamedTuple

import click

from barnabas.cli.input_records import InputForm
from barnabas.cli.options import options

#: option to log in to a registry with the login of the cluster
registry_login_option = click.option(
    "--registry-login",
    is_flag=True,
    help="Log in to the registry as to the cluster, and trust the same authorities.",
)
schema_options = options(
    click.option("--registry", metavar="URL", help="The schema registry of --value-schema and --key-schema."),
    registry_login_option,
    click.option(
        "--value-schema",
        metavar="SCHEMA",
        help="Encode the values, which are JSON, by this registered schema.",
    ),
    click.option(
        "--value-message",
        metavar="NAME",
        default="",
        help="The message of a Protobuf schema; by default its first one.",
    ),
    click.option(
        "--key-schema", metavar="SCHEMA", help="Encode the keys, which are JSON, by this registered schema."
    ),
    click.option(
        "--key-message",
        metavar="NAME",
        default="",
        help="The message of the keys' Protobuf schema; by default its first one.",
    ),
)


class Schemas(NamedTuple):
    """Values of the options for registered schemas."""

    registry: str | None
    registry_login: bool
    value_schema: str | None
    value_message: str
    key_schema: str | None
    key_message: str

    def check(self, *, has_keys: bool) -> None:
        """Raise click.UsageError if an option is missing that another option requires.

        `has_keys` is whether the other options give the records keys.
        """
        for name, schema, message in (
            ("value", self.value_schema, self.value_message),
            ("key", self.key_schema, self.key_message),
        ):
            if schema is not None and self.registry is None:
                raise click.UsageError(
                    f"--{name}-schema needs --registry: the URL of the registry that has it"
                )
            if message and schema is None:
                raise click.UsageError(
                    f"--{name}-message needs --{name}-schema: the schema that has the message"
                )
        if (
            (self.registry is not None or self.registry_login)
            and self.value_schema is None
            and self.key_schema is None
        ):
            raise click.UsageError("--registry needs --value-schema or --key-schema")
        if self.key_schema is not None and not has_keys:
            raise click.UsageError("--key-schema needs keys: add --key, --key-separator or --json")

    def add_to(self, form: InputForm, servers: str) -> InputForm:
        """Return the input format `form` with encoders for the schemas.

        Raises:
            SchemaNameError, RegistryError, SchemaError, ConfigError: the schema or the registry cannot be
                used.
        """
        if self.registry is None:
            return form
        from barnabas.client.schemas.codec import Encoder
        from barnabas.client.schemas.registered import find
        from barnabas.client.schemas.registry import SchemaRegistry
        from barnabas.client.servers import servers_of

        registry = SchemaRegistry(self.registry, servers_of(servers, {}) if self.registry_login else None)
        value, key = (
            None if schema is None else Encoder(find(registry, schema)[0], message, path)
            for schema, message, path in (
                (self.value_schema, self.value_message, "value"),
                (self.key_schema, self.key_message, "key"),
            )
        )
        return form._replace(value=value, key=key)
