"""Checks whether a reader's schema can read data of a writer's schema, by Avro's rules of schema resolution.

Source: https://avro.apache.org/docs/1.12.0/specification/#schema-resolution. fastavro resolves schemas only
while it reads records. The checker of Python's package `avro` does not say where in the schema an error is.
The tests compare the results of this module with those of `avro`.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import islice

from barnabas.registry.avro.nodes import NAMED, RECORDS, Field, SchemaNode
from barnabas.registry.incompatibility import Incompatibility
from barnabas.registry.limits import REASONS, Steps

#: the reader's types that a writer's type can be promoted to
_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


def incompatibilities(reader: SchemaNode, writer: SchemaNode) -> list[Incompatibility]:
    """Return reasons why `reader` cannot read data that was written with `writer`.

    The list has at most `limits.REASONS` reasons. It is empty if `reader` can always read the data.

    Raises:
        TooLargeError: the comparison takes too many steps.
    """
    return _Check().compare(reader, writer, "")


class _Check:
    def __init__(self) -> None:
        # A pair that is being compared counts as compatible, so that recursive schemas end.
        self._under_way: dict[tuple[SchemaNode, SchemaNode], list[Incompatibility]] = {}
        self._fields_by_name: dict[SchemaNode, dict[str, Field]] = {}
        self._branches: dict[SchemaNode, _Branches] = {}
        self._steps = Steps()

    def compare(self, reader: SchemaNode, writer: SchemaNode, path: str) -> list[Incompatibility]:
        pair = (reader, writer)
        self._steps.spend()
        if pair not in self._under_way:
            self._under_way[pair] = []
            # Each type once: every path to a type would report its errors again.
            found = dict.fromkeys(self._compare(reader, writer, path))
            self._under_way[pair] = list(islice(found, REASONS))
        return self._under_way[pair]

    def _compare(self, reader: SchemaNode, writer: SchemaNode, path: str) -> list[Incompatibility]:
        if writer.kind == "union":
            every = (
                found
                for number, branch in enumerate(writer.branches)
                for found in self._read_branch(reader, branch, path, number)
            )
            return list(islice(every, REASONS))
        if reader.kind == "union":
            if any(not self.compare(branch, writer, path) for branch in self._candidates(reader, writer)):
                return []
            return [
                Incompatibility("MISSING_UNION_BRANCH", path or "/", f"no branch takes {_called(writer)}")
            ]
        if reader.kind in RECORDS and writer.kind in RECORDS:
            return self._names(reader, writer, path) + self._fields(reader, writer, path)
        if reader.kind != writer.kind:
            if reader.kind in _PROMOTIONS.get(writer.kind, ()):
                return []
            words = f"{_called(writer)} cannot be read as {_called(reader)}"
            return [Incompatibility("TYPE_MISMATCH", path or "/", words)]
        if reader.inner is not None and writer.inner is not None:
            return self.compare(
                reader.inner, writer.inner, f"{path}/{'items' if reader.kind == 'array' else 'values'}"
            )
        if reader.kind == "enum":
            return self._names(reader, writer, path) + self._symbols(reader, writer, path)
        if reader.kind == "fixed":
            return self._names(reader, writer, path) + self._size(reader, writer, path)
        return []

    def _candidates(self, reader: SchemaNode, writer: SchemaNode) -> list[SchemaNode]:
        """Return the branches of the union `reader` that could read `writer`."""
        if reader not in self._branches:
            self._branches[reader] = _Branches(reader)
        return self._branches[reader].candidates(writer)

    def _by_name(self, record: SchemaNode) -> dict[str, Field]:
        if record not in self._fields_by_name:
            self._fields_by_name[record] = {field.name: field for field in record.fields}
        return self._fields_by_name[record]

    def _read_branch(
        self, reader: SchemaNode, branch: SchemaNode, path: str, number: int
    ) -> list[Incompatibility]:
        where = f"{path}/{number}"
        found = self.compare(reader, branch, where)
        if found and reader.kind == "union":
            return [Incompatibility("MISSING_UNION_BRANCH", where, f"no branch takes {_called(branch)}")]
        return found

    def _names(self, reader: SchemaNode, writer: SchemaNode, path: str) -> list[Incompatibility]:
        # Java compares names without their namespaces, so that a package may be renamed.
        if reader.simple_name == writer.simple_name or writer.name in reader.aliases:
            return []
        words = f"{writer.name} is now called {reader.name}, without an alias"
        return [Incompatibility("NAME_MISMATCH", f"{path}/name", words)]

    def _fields(self, reader: SchemaNode, writer: SchemaNode, path: str) -> list[Incompatibility]:
        found: list[Incompatibility] = []
        by_name = self._by_name(writer)
        for number, field in enumerate(reader.fields):
            if len(found) >= REASONS:
                break
            where = f"{path}/fields/{number}"
            names = (field.name, *field.aliases)
            self._steps.spend(len(names))
            written = next((by_name[name] for name in names if name in by_name), None)
            if written is not None:
                found += self.compare(field.node, written.node, f"{where}/type")
            elif not field.has_default:
                words = f"field {field.name} has no default and the writer does not have it"
                found.append(Incompatibility("READER_FIELD_MISSING_DEFAULT_VALUE", where, words))
        return found

    def _symbols(self, reader: SchemaNode, writer: SchemaNode, path: str) -> list[Incompatibility]:
        symbols = set(reader.symbols)
        missing = [symbol for symbol in writer.symbols if symbol not in symbols]
        if not missing or reader.default is not None:
            return []
        words = f"enum {reader.name} has no default and lacks {', '.join(missing)}"
        return [Incompatibility("MISSING_ENUM_SYMBOLS", f"{path}/symbols", words)]

    def _size(self, reader: SchemaNode, writer: SchemaNode, path: str) -> list[Incompatibility]:
        if reader.size == writer.size:
            return []
        words = f"{writer.size} bytes cannot be read as {reader.size}"
        return [Incompatibility("FIXED_SIZE_MISMATCH", f"{path}/size", words)]


class _Branches:
    """The branches of a reader's union, indexed by the type names that they match."""

    def __init__(self, union: SchemaNode) -> None:
        self.unnamed = [branch for branch in union.branches if branch.kind not in NAMED]
        self.named: dict[str, list[SchemaNode]] = defaultdict(list)
        self.aliased: dict[str, list[SchemaNode]] = defaultdict(list)
        for branch in union.branches:
            if branch.kind in NAMED:
                self.named[branch.simple_name].append(branch)
                for alias in branch.aliases:
                    self.aliased[alias].append(branch)

    def candidates(self, writer: SchemaNode) -> list[SchemaNode]:
        if writer.kind not in NAMED:
            return self.unnamed
        return self.named.get(writer.simple_name, []) + self.aliased.get(writer.name, [])


def _called(node: SchemaNode) -> str:
    return f"{node.kind} {node.name}" if node.kind in NAMED else node.kind
