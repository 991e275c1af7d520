"""Compiles a message's declaration and one version into a function that encodes it.

Bytes are appended to one bytearray, a run of fixed-size fields and the length byte that follows it at a time.
Record batches are not copied: they become chunks of their own (see `wire.put_records`).
"""

from collections.abc import Callable
from struct import Struct as Layout
from typing import Any

from barnabas.protocol import wire
from barnabas.protocol.schema import Field, Message, Primitive, Struct
from barnabas.types import Buffer

Encoder = Callable[[Any, bytearray], list[Buffer]]


def compile_encoder(message: type[Message], version: int) -> Encoder:
    """``encode(message, out)``, which appends to `out` and returns the chunks to send, `out` the first."""
    return _Compiler(message, version).compile()


class _Compiler:
    def __init__(self, message: type[Message], version: int) -> None:
        self.message = message
        self.version = version
        self.flexible = version >= message.flexible_from
        self.lines: list[str] = []
        self.depth = 1
        self.names = 0
        self.out = "out"  # the bytearray that the code being emitted writes to
        self.run: list[tuple[str, str]] = []  # fixed-size fields not yet written: (struct code, expression)
        self.namespace: dict[str, Any] = {
            "uvarint": wire.uvarint,
            "string_length": wire.string_length,
            "ints": wire.ints,
            "put_records": wire.put_records,
            "unexpected_null": wire.unexpected_null,
        }

    def compile(self) -> Encoder:
        self.struct(self.message, "message")
        self.flush()
        name = f"encode_{self.message.__name__}_v{self.version}"
        source = "\n".join(
            [
                f"def {name}(message, out):",
                " chunks = []",
                *self.lines,
                " chunks.append(out)",
                " return chunks",
            ]
        )
        exec(compile(source, f"<{name}>", "exec"), self.namespace)
        encoder: Encoder = self.namespace[name]
        return encoder

    # -- emitting --------------------------------------------------------------------------------

    def emit(self, *lines: str) -> None:
        self.lines += [" " * self.depth + line for line in lines]

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def write(self, code: str, value: str = "") -> None:
        """Leave a fixed-size value to the next flush; code ``x`` is a zero byte and has no value."""
        self.run.append((code, value))

    def packed(self) -> str:
        """The run of fixed-size values as an expression of bytes; empties the run."""
        codes = "".join(code for code, _ in self.run)
        values = ", ".join(value for code, value in self.run if code != "x")
        self.run = []
        if not values:
            return repr(bytes(len(codes)))
        name = "pack_" + codes.replace("?", "o")
        self.namespace[name] = Layout(f">{codes}").pack
        return f"{name}({values})"

    def flush(self) -> None:
        if self.run:
            self.emit(f"{self.out} += {self.packed()}")

    # -- structs and fields ----------------------------------------------------------------------

    def struct(self, cls: type[Struct], source: str) -> None:
        """Encode the instance named `source`; its last run may still be pending."""
        fields = [f for f in cls.__fields__ if f.in_version(self.version)]
        for field in fields:
            if field.tag is None:
                self.field(field, f"{source}.{field.name}")
        if self.flexible:
            self.tagged_section([f for f in fields if f.tag is not None], source)

    def field(self, field: Field, source: str) -> None:
        label = f"{self.message.__name__}.{field.name}"
        nullable = field.nullable_in(self.version)
        if field.is_array:
            self.array(field, source, label, nullable)
        elif not isinstance(field.type, Primitive):
            self.nested(field.type, source, nullable)
        elif field.type.code:
            self.write(field.type.code, source)
        elif field.type.name == "records":
            self.records(source, label, nullable)
        else:
            self.sized(field.type.name == "string", source, label, nullable)

    def length(self, n: str, string: bool) -> None:
        """Write the length held by `n` (plus one already when flexible) with the run before it."""
        if not self.flexible:
            self.write("h" if string else "i", n)
            self.flush()
            return
        long = f"{'string_length' if string else 'uvarint'}({n})"
        if not self.run:
            self.emit(f"if {n} < 128: {self.out}.append({n})", f"else: {self.out} += {long}")
            return
        before = list(self.run)
        self.write("B", n)
        self.emit(f"if {n} < 128: {self.out} += {self.packed()}")
        self.run = before
        self.emit(f"else: {self.out} += {self.packed()} + {long}")

    def null(self, value: str, code: str, label: str, nullable: bool) -> None:
        """What is done when `value` is null; the caller goes on with the ``else``."""
        self.emit(f"if {value} is None:")
        before = list(self.run)
        self.depth += 1
        if not nullable:
            self.emit(f"unexpected_null({label!r})")
        else:
            if self.flexible:
                self.write("x")
            else:
                self.write(code, "-1")
            self.flush()
        self.depth -= 1
        self.run = before
        self.emit("else:")

    def sized(self, string: bool, source: str, label: str, nullable: bool) -> None:
        """A string or bytes."""
        n, data = self.name("n"), self.name("data")
        self.emit(f"{data} = {source}")
        self.null(data, "h" if string else "i", label, nullable)
        self.depth += 1
        if string:
            self.emit(f"{data} = {data}.encode()")
        self.emit(f"{n} = len({data}){' + 1' if self.flexible else ''}")
        self.length(n, string)
        self.emit(f"{self.out} += {data}")
        self.depth -= 1

    def records(self, source: str, label: str, nullable: bool) -> None:
        assert self.out == "out", "records are never inside a tagged field"
        self.flush()
        data = self.name("data")
        null = b"\0" if self.flexible else b"\xff\xff\xff\xff"
        self.emit(
            f"{data} = {source}",
            f"if {data} is None: {f'out += {null!r}' if nullable else f'unexpected_null({label!r})'}",
            f"else: out = put_records({data}, {self.flexible}, chunks, out)",
        )

    def array(self, field: Field, source: str, label: str, nullable: bool) -> None:
        n, items, item = self.name("n"), self.name("items"), self.name("item")
        self.emit(f"{items} = {source}")
        self.null(items, "i", label, nullable)
        depth = self.depth
        self.depth += 1
        self.emit(f"{n} = len({items}){' + 1' if self.flexible else ''}")
        kind = field.type
        if isinstance(kind, Primitive) and kind.code in ("i", "q"):
            self.ints(kind.code, n, items)
        else:
            self.length(n, string=False)
            self.emit(f"for {item} in {items}:")
            self.depth += 1
            if isinstance(kind, Primitive):
                self.field(field._replace(is_array=False, nullable_since=self.version + 1), item)
            else:
                self.struct(kind, item)
            self.flush()
        self.depth = depth

    def ints(self, code: str, n: str, items: str) -> None:
        """An array of integers: a short one goes into one layout with its length and the run before it."""
        writers = self.name("writers")
        before = list(self.run)
        codes = "".join(code for code, _ in before)
        self.namespace[writers] = wire.IntWriters(codes, code, self.flexible)
        values = "".join(f"{value}, " for code, value in before if code != "x")
        self.emit(
            f"if {n} <= {wire.SHORT_ARRAY}: {self.out} += {writers}[{n}]({values}{n}, *{items})", "else:"
        )
        self.depth += 1
        self.length(n, string=False)
        self.emit(f"{self.out} += ints({code!r}, {items})")
        self.depth -= 1

    def nested(self, cls: type[Struct], source: str, nullable: bool) -> None:
        item = self.name("item")
        if not nullable:
            self.emit(f"{item} = {source}")
            self.struct(cls, item)
            return
        self.flush()
        self.emit(f"{item} = {source}", f"if {item} is None: {self.out} += b'\\xff'", "else:")
        self.depth += 1
        self.write("b", "1")
        self.struct(cls, item)
        self.flush()
        self.depth -= 1

    def tagged_section(self, fields: list[Field], source: str) -> None:
        """The tagged fields that differ from their defaults, in the order of their tags."""
        if not fields:
            self.write("x")
            return
        self.flush()
        outer, count, section = self.out, self.name("n"), self.name("section")
        changed = {}
        for field in fields:
            default = self.name("default")
            self.namespace[default] = field.default
            value = f"{source}.{field.name}"
            # Identity first: most messages hold the very default.
            changed[field.name] = f"({value} is not {default} and {value} != {default})"
        self.emit(f"if {' or '.join(changed.values())}:")
        self.depth += 1
        self.emit(f"{count} = 0", f"{section} = bytearray()")
        for field in sorted(fields, key=lambda f: f.tag or 0):
            self.out = self.name("tagged")
            self.emit(f"if {changed[field.name]}:")
            self.depth += 1
            self.emit(f"{self.out} = bytearray()")
            self.field(field, f"{source}.{field.name}")
            self.flush()
            tag = bytes([field.tag or 0])
            self.emit(
                f"{count} += 1",
                f"{section} += {tag!r} + uvarint(len({self.out})) + {self.out}",
            )
            self.depth -= 1
        self.out = outer
        self.emit(f"{self.out} += uvarint({count}) + {section}")
        self.depth -= 1
        self.emit(f"else: {self.out} += b'\\0'")
