"""Whether data written with one schema can be read with another: Avro's rules of schema resolution.

Source: https://avro.apache.org/docs/1.12.0/specification/#schema-resolution. fastavro resolves record by
record, when it is too late; the checker of Python's `avro` does not say which place a finding belongs to. The
tests hold this one against that one.
"""

from __future__ import annotations

from barnabas.registry.avro.nodes import NAMED, RECORDS, Field, Node
from barnabas.registry.incompatibility import Incompatibility

#: what the writer's type may become: the reader's types that take it
_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


def incompatibilities(reader: Node, writer: Node) -> list[Incompatibility]:
    """Every reason why data of `writer` cannot be read as `reader`; none when it always can."""
    return _Check().compare(reader, writer, "")


class _Check:
    def __init__(self) -> None:
        # A pair under way counts as compatible: a recursive schema is as good as the rest of it.
        self._under_way: dict[tuple[Node, Node], list[Incompatibility]] = {}

    def compare(self, reader: Node, writer: Node, place: str) -> list[Incompatibility]:
        pair = (reader, writer)
        if pair not in self._under_way:
            self._under_way[pair] = []
            # Each once: every way that leads to a type would double what is wrong with it.
            self._under_way[pair] = list(dict.fromkeys(self._compare(reader, writer, place)))
        return self._under_way[pair]

    def _compare(self, reader: Node, writer: Node, place: str) -> list[Incompatibility]:
        if writer.kind == "union":
            return [
                found
                for number, branch in enumerate(writer.branches)
                for found in self._read_branch(reader, branch, place, number)
            ]
        if reader.kind == "union":
            if any(not self.compare(branch, writer, place) for branch in reader.branches):
                return []
            return [
                Incompatibility("MISSING_UNION_BRANCH", place or "/", f"no branch takes {_called(writer)}")
            ]
        if reader.kind in RECORDS and writer.kind in RECORDS:
            return self._names(reader, writer, place) + self._fields(reader, writer, place)
        if reader.kind != writer.kind:
            if reader.kind in _PROMOTIONS.get(writer.kind, ()):
                return []
            words = f"{_called(writer)} cannot be read as {_called(reader)}"
            return [Incompatibility("TYPE_MISMATCH", place or "/", words)]
        if reader.inner is not None and writer.inner is not None:
            return self.compare(
                reader.inner, writer.inner, f"{place}/{'items' if reader.kind == 'array' else 'values'}"
            )
        if reader.kind == "enum":
            return self._names(reader, writer, place) + self._symbols(reader, writer, place)
        if reader.kind == "fixed":
            return self._names(reader, writer, place) + self._size(reader, writer, place)
        return []

    def _read_branch(self, reader: Node, branch: Node, place: str, number: int) -> list[Incompatibility]:
        found = self.compare(reader, branch, place)
        if found and reader.kind == "union":
            where = f"{place}/{number}"
            return [Incompatibility("MISSING_UNION_BRANCH", where, f"no branch takes {_called(branch)}")]
        return found

    def _names(self, reader: Node, writer: Node, place: str) -> list[Incompatibility]:
        # Java compares names without their namespaces, so that a package may be renamed.
        if reader.simple_name == writer.simple_name or writer.name in reader.aliases:
            return []
        words = f"{writer.name} is now called {reader.name}, without an alias"
        return [Incompatibility("NAME_MISMATCH", f"{place}/name", words)]

    def _fields(self, reader: Node, writer: Node, place: str) -> list[Incompatibility]:
        found = []
        for number, field in enumerate(reader.fields):
            where = f"{place}/fields/{number}"
            written = _written(field, writer)
            if written is not None:
                found += self.compare(field.node, written.node, f"{where}/type")
            elif not field.has_default:
                words = f"field {field.name} has no default and the writer does not have it"
                found.append(Incompatibility("READER_FIELD_MISSING_DEFAULT_VALUE", where, words))
        return found

    def _symbols(self, reader: Node, writer: Node, place: str) -> list[Incompatibility]:
        missing = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
        if not missing or reader.default is not None:
            return []
        words = f"enum {reader.name} has no default and lacks {', '.join(missing)}"
        return [Incompatibility("MISSING_ENUM_SYMBOLS", f"{place}/symbols", words)]

    def _size(self, reader: Node, writer: Node, place: str) -> list[Incompatibility]:
        if reader.size == writer.size:
            return []
        words = f"{writer.size} bytes cannot be read as {reader.size}"
        return [Incompatibility("FIXED_SIZE_MISMATCH", f"{place}/size", words)]


def _written(field: Field, writer: Node) -> Field | None:
    by_name = {written.name: written for written in writer.fields}
    return next((by_name[name] for name in (field.name, *field.aliases) if name in by_name), None)


def _called(node: Node) -> str:
    return f"{node.kind} {node.name}" if node.kind in NAMED else node.kind
