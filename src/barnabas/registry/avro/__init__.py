"""Parses, prints and compares Avro schemas. Rules and printed text are those of Java's Avro library."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.registry.avro import nodes, text
from barnabas.registry.avro.compatibility import incompatibilities
from barnabas.registry.avro.defaults import check_defaults
from barnabas.registry.document import Elements
from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.incompatibility import Incompatibility

__all__ = ["AvroSchema"]


class AvroSchema:
    """A parsed Avro schema. `text` is its canonical form.

    `schema` is the schema's JSON. `references` has the name and the text of each schema that `schema` refers
    to, directly or indirectly. A referenced schema comes after the schemas that it refers to itself.
    With `normalize`, `text` is the normalized text of the module `text`.

    Raises:
        InvalidSchemaError: the text is not JSON, or breaks a rule of Avro.
        TooLargeError: the schema has more elements than the limit.
    """

    def __init__(self, schema: str, references: Sequence[tuple[str, str]] = (), *, normalize: bool = False):
        known: dict[str, nodes.SchemaNode] = {}
        elements = Elements()
        for _, referred in references:
            nodes.read(_load(referred, elements), known)
        defined = frozenset(known)
        self._node = nodes.read(_load(schema, elements), known)
        self.text = text.write(self._node, normalize=normalize, defined=defined)

    def check_defaults(self) -> None:
        """Check the default values of all fields.

        Raises:
            InvalidSchemaError: a default is not a value of its field's type.
            TooLargeError: the checks take too many steps.
        """
        check_defaults(self._node)

    def cannot_read(self, written: AvroSchema) -> list[Incompatibility]:
        """Return the reasons why this schema cannot read data of the schema `written`; empty if it can.

        Raises TooLargeError if the comparison takes too many steps.
        """
        return incompatibilities(self._node, written._node)


def _load(schema: str, elements: Elements) -> object:
    try:
        loaded: object = elements.load(schema)
        return loaded
    except ValueError as error:
        # Java's parser takes the bare name of a primitive type, and so do registries.
        if schema.strip() in nodes.PRIMITIVES:
            return schema.strip()
        raise InvalidSchemaError(f"it is not JSON: {error}") from None
