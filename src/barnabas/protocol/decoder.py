"""Compiles a message's declaration and one version into a function that decodes it.

What makes the function fast, in order of gain: one `struct` read for each run of fixed-size fields together
with the length byte that follows it; slots stored inline on a bare `object.__new__`; nested structs inlined
into loops. It does not check that slices end inside the buffer: every later read, and the last comparison of
position with length, fails when one did not.
"""

from collections.abc import Callable
from struct import Struct as Layout
from typing import Any

from barnabas.errors import ProtocolError
from barnabas.protocol import wire
from barnabas.protocol.schema import Field, Message, Primitive, Struct

Decoder = Callable[[wire.Readable, int], Any]

_INT_READERS = {code: wire.int_readers(code) for code in "iq"}


def compile_decoder(message: type[Message], version: int) -> Decoder:
    """``decode(buffer, position)``, which reads to the buffer's end and returns an instance of `message`."""
    return _Compiler(message, version).compile()


class _Compiler:
    def __init__(self, message: type[Message], version: int) -> None:
        self.message = message
        self.version = version
        self.flexible = version >= message.flexible_from
        self.lines: list[str] = []
        self.depth = 1
        self.names = 0
        self.run: list[tuple[str, str]] = []  # (struct code, target) of the fixed-size fields not yet read
        self.namespace: dict[str, Any] = {
            **{name: getattr(wire, name) for name in (
                "read_uvarint", "read_string", "read_bytes", "read_array_length", "check_array_length",
                "read_ints", "read_tag_count", "skip_tags", "unexpected_null",
            )},
            "ProtocolError": ProtocolError,
            "new": object.__new__,
        }  # fmt: skip

    def compile(self) -> Decoder:
        self.struct(self.message, "message")
        self.flush()
        name = f"decode_{self.message.__name__}_v{self.version}"
        head = [f"def {name}(buffer, pos):"]
        if any("view[" in line for line in self.lines):
            head.append(" view = memoryview(buffer)")
        slack = self.message.slack
        tail = [
            f" if not pos <= len(buffer) <= pos + {slack}:" if slack else " if pos != len(buffer):",
            f"  raise ProtocolError(f'{name} ended at byte {{pos}} of {{len(buffer)}}')",
            " return message",
        ]
        source = "\n".join(head + self.lines + tail)
        exec(compile(source, f"<{name}>", "exec"), self.namespace)
        decoder: Decoder = self.namespace[name]
        return decoder

    # -- emitting --------------------------------------------------------------------------------

    def emit(self, *lines: str) -> None:
        self.lines += [" " * self.depth + line for line in lines]

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def constant(self, prefix: str, value: Any) -> str:
        for name, known in self.namespace.items():
            if known is value:
                return name
        name = self.name(prefix)
        self.namespace[name] = value
        return name

    def read(self, code: str, target: str) -> None:
        """Leave a fixed-size value to the next flush."""
        self.run.append((code, target))

    def flush(self, keep: int = 0) -> None:
        """Read the run of fixed-size values at once; `pos` stays before the last `keep` bytes of it."""
        if not self.run:
            return
        codes = "".join(code for code, _ in self.run)
        targets = ", ".join(target for _, target in self.run)
        layout = "unpack_" + codes.replace("?", "o")
        self.namespace[layout] = Layout(f">{codes}").unpack_from
        self.emit(f"{targets}, = {layout}(buffer, pos)", f"pos += {Layout('>' + codes).size - keep}")
        self.run = []

    def peek(self) -> str:
        """The name of the next byte, read together with the run before it; `pos` stays at that byte."""
        n = self.name("n")
        if self.run:
            self.read("B", n)
            self.flush(keep=1)
        else:
            self.emit(f"{n} = buffer[pos]")
        return n

    # -- structs and fields ----------------------------------------------------------------------

    def struct(self, cls: type[Struct], target: str) -> None:
        """Decode `cls` into a new instance named `target`; its last run may still be pending."""
        self.emit(f"{target} = new({self.constant(cls.__name__, cls)})")
        tagged = [f for f in cls.__fields__ if f.tag is not None and f.in_version(self.version)]
        for field in cls.__fields__:
            if field in tagged or not field.in_version(self.version):
                self.emit(f"{target}.{field.name} = {self.default(field)}")
            else:
                self.field(field, f"{target}.{field.name}")
        if self.flexible:
            self.tagged_section(cls, target, tagged)

    def default(self, field: Field) -> str:
        if field.default == [] and field.is_array:
            return "[]"
        if field.default is None or isinstance(field.default, (bool, int, str)):
            return repr(field.default)
        return self.constant("default", field.default)

    def field(self, field: Field, target: str) -> None:
        label = f"{self.message.__name__}.{field.name}"
        nullable = field.nullable_in(self.version)
        if field.is_array:
            self.array(field, target, label, nullable)
        elif not isinstance(field.type, Primitive):
            self.nested(field.type, target, nullable)
        elif field.type.code:
            self.read(field.type.code, target)
        else:
            self.sized(field.type.name, target, label, nullable)

    def sized(self, kind: str, target: str, label: str, nullable: bool) -> None:
        """A string, bytes or records."""
        if self.flexible and kind != "records":
            n = self.peek()
            data = "buffer[pos + 1:stop]"
            value = f"{data}.decode('utf-8', 'replace')" if kind == "string" else f"bytes({data})"
            self.emit(
                f"if 0 < {n} < 128:",
                f" stop = pos + {n}",
                f" {target} = {value}",
                " pos = stop",
                f"else: {target}, pos = read_{kind}(buffer, pos, {None if nullable else label!r})",
            )
            return
        n = self.name("n")
        if self.flexible:  # records are seldom shorter than 128 bytes
            self.flush()
            self.emit(f"{n}, pos = read_uvarint(buffer, pos)", f"{n} -= 1")
        else:
            self.read("h" if kind == "string" else "i", n)
            self.flush()
        value = {
            "string": "buffer[pos:stop].decode('utf-8', 'replace')",
            "bytes": "bytes(buffer[pos:stop])",
            "records": "view[pos:stop]",
        }[kind]
        self.emit(
            f"if {n} >= 0:",
            f" stop = pos + {n}",
            f" {target} = {value}",
            " pos = stop",
            f"else: {f'{target} = None' if nullable else f'unexpected_null({label!r})'}",
        )

    def array_length(self, required: str | None) -> str:
        """The name of an array's length, negative for null; a long one is checked against the bytes left.

        A short one need not be: its elements soon find the end of the buffer.
        """
        if self.flexible:
            n = self.peek()
            self.emit(
                f"if 0 < {n} < 128: {n} -= 1; pos += 1",
                f"else: {n}, pos = read_array_length(buffer, pos, {required!r})",
            )
        else:
            n = self.name("n")
            self.read("i", n)
            self.flush()
            self.emit(f"if not 0 <= {n} < 128: check_array_length({n}, len(buffer) - pos, {required!r})")
        return n

    def array(self, field: Field, target: str, label: str, nullable: bool) -> None:
        n = self.array_length(None if nullable else label)
        depth = self.depth
        if nullable:
            self.emit(f"if {n} < 0: {target} = None", "else:")
            self.depth += 1
        kind = field.type
        if isinstance(kind, Primitive) and kind.code in _INT_READERS:
            readers = f"read_{kind.code}"
            self.namespace[readers] = _INT_READERS[kind.code]
            self.emit(
                f"if {n} <= {wire.SHORT_ARRAY}: {target} = [*{readers}[{n}](buffer, pos)]",
                f"else: {target} = read_ints({kind.code!r}, buffer, pos, {n})",
                f"pos += {Layout('>' + kind.code).size} * {n}",
            )
        else:
            items, item = self.name("items"), self.name("item")
            self.emit(f"{target} = {items} = []", f"for _ in range({n}):")
            self.depth += 1
            if isinstance(kind, Primitive):
                self.field(field._replace(is_array=False, nullable_since=self.version + 1), item)
            else:
                self.struct(kind, item)
            self.flush()
            self.emit(f"{items}.append({item})")
        self.depth = depth

    def nested(self, cls: type[Struct], target: str, nullable: bool) -> None:
        item = self.name("item")
        if not nullable:
            self.struct(cls, item)
            self.emit(f"{target} = {item}")
            return
        marker = self.name("n")
        self.read("b", marker)
        self.flush()
        self.emit(f"if {marker} < 0: {target} = None", "else:")
        self.depth += 1
        self.struct(cls, item)
        self.flush()
        self.emit(f"{target} = {item}")
        self.depth -= 1

    def tagged_section(self, cls: type[Struct], target: str, known: list[Field]) -> None:
        count = self.peek()
        if not known:
            self.emit(f"if {count}: pos = skip_tags(buffer, pos)", "else: pos += 1")
            return
        tag, stop = self.name("tag"), self.name("stop")
        self.emit(f"if not {count}: pos += 1", "else:")
        self.depth += 1
        self.emit(
            f"{count}, pos = read_tag_count(buffer, pos)",
            f"for _ in range({count}):",
            f" {tag}, pos = read_uvarint(buffer, pos)",
            f" {stop}, pos = read_uvarint(buffer, pos)",
            f" {stop} += pos",
        )
        self.depth += 1
        for index, field in enumerate(known):
            self.emit(f"{'elif' if index else 'if'} {tag} == {field.tag}:")
            self.depth += 1
            self.field(field, f"{target}.{field.name}")
            self.flush()
            self.depth -= 1
        self.emit(
            f"else: pos = {stop}",
            f"if pos != {stop}: raise ProtocolError(f'tag {{{tag}}} of {cls.__name__} has a wrong size')",
        )
        self.depth -= 2
