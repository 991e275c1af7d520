"""Parses and compares Protobuf schemas. protoc compiles them, and the registry stores them as .proto text.

The modules of this package need the extra ``barnabas[protobuf]``. They are imported when the first Protobuf
schema is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.incompatibility import Incompatibility

__all__ = ["ProtobufSchema"]


class ProtobufSchema:
    """A Protobuf file, given as .proto text or as the base64 of a FileDescriptorProto.

    `references` has pairs of name and text: the files that the schema imports directly and indirectly. `text`
    is the canonical form, printed from the descriptor without comments. `text` is the same whether the file
    was given as .proto text or as base64. With `normalize`, the imports in `text` are sorted by name.

    The constructor blocks until protoc ends: about 50 ms if `schema` is already the canonical text. In all
    other cases protoc also compiles the canonical text, which takes another 50 ms. The registry stores the
    canonical text forever. So the constructor rejects a schema whose canonical text has another descriptor.

    Raises:
        InvalidSchemaError: protoc rejects the schema, the base64 is not a descriptor that can be printed, or
            protoc makes another descriptor of the printed text.
        RegistryError: OPERATION_TIMEOUT or STORE_ERROR, protoc takes too long or crashes.
    """

    def __init__(self, schema: str, references: Sequence[tuple[str, str]] = (), *, normalize: bool = False):
        from barnabas.registry.protobuf import descriptors, text
        from barnabas.registry.protobuf.protoc import MAIN, compile_files

        given = descriptors.decode(schema, MAIN)
        if given is None:
            files = compile_files(schema, references)
        else:
            imports = "".join(f'import "{name}";' for name in given.dependency)
            files = {**compile_files(f'syntax = "proto3"; {imports}', references), MAIN: given}
        if normalize:
            descriptors.sort_imports(files[MAIN])
        self.text = text.write(files[MAIN], descriptors.link(files))
        if self.text != schema:
            said, files = files, compile_files(self.text, references)
            if not descriptors.same(MAIN, said, files):
                raise InvalidSchemaError("its descriptor is not one that protoc makes of .proto text")
        self._main = files[MAIN]
        self._linked = descriptors.link(files).FindFileByName(MAIN)

    @cached_property
    def serialized(self) -> str:
        """Return the FileDescriptorProto in base64, for clients without a Protobuf compiler."""
        from barnabas.registry.protobuf import descriptors

        return descriptors.encode(self._main, "default")  # the importing file chooses its name

    def cannot_read(self, written: ProtobufSchema) -> list[Incompatibility]:
        """Return the reasons why this schema cannot read messages of `written`; empty if it can.

        Raises TooLargeError if the comparison takes too many steps.
        """
        from barnabas.registry.protobuf.compatibility import incompatibilities

        return incompatibilities(self._linked, written._linked)
