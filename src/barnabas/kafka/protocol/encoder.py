"""Compiles a message's declaration and one version into a function that encodes it.

The function appends to one bytearray. A single append writes a run of fixed-size fields together with the
length byte that follows the run. Record batches of `wire._SMALL` bytes or more are not copied: they become
chunks of their own (see `wire.put_records`).
"""

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from struct import Struct as Layout
from typing import Any

from barnabas.base.types import Chunk
from barnabas.kafka.protocol import wire
from barnabas.kafka.protocol.codegen import FunctionBuilder
from barnabas.kafka.protocol.schema import Field, Message, Primitive, Struct

Encoder = Callable[[Any, bytearray], list[Chunk]]

ItemsEncoder = Callable[[Iterable[Any], bytearray], None]


class EncodedItems(Sized):
    """The encoded elements of an array. It can replace the list of structs as the value of an array field.

    This is possible only in a field of the message itself, not in a field of a struct. The elements must be
    encoded in the version of the message.
    """

    __slots__ = ("_count", "content")

    def __init__(self, count: int, content: bytes) -> None:
        self._count = count
        self.content = content

    def __len__(self) -> int:
        return self._count


_NAMES = {
    function.__name__: function
    for function in (
        wire.uvarint,
        wire.string_length,
        wire.ints,
        wire.put_records,
        wire.unexpected_null,
        EncodedItems,
    )
}


def compile_encoder(message: type[Message], version: int) -> Encoder:
    """Return ``encode(message, out)``, which encodes a message.

    ``encode`` appends to the bytearray `out`, and returns the list of chunks to send. Its first chunk is
    `out`.
    """
    compiler = _Compiler(message, version, dict(_NAMES))
    compiler.struct(message, "message")
    compiler.flush()
    head, tail = ["chunks = []"], ["chunks.append(out)", "return chunks"]
    encoder: Encoder = compiler.function("encode", "message, out", head, tail)
    return encoder


def compile_items_encoder(message: type[Message], items: type[Struct], version: int) -> ItemsEncoder:
    """Return ``encode(items, out)``, which encodes the structs of an array of `message`.

    ``encode`` appends the structs to the bytearray `out`, without the array's length. The structs must not
    have fields with records.
    """
    compiler = _Compiler(message, version, dict(_NAMES))
    item = compiler.name("item")
    with compiler.block(f"for {item} in items:"):
        compiler.struct(items, item)
        compiler.flush()
    encoder: ItemsEncoder = compiler.function(f"encode_{items.__name__}_of", "items, out", [], [])
    return encoder


class _Compiler(FunctionBuilder):
    """Emits the code that encodes one message.

    In its methods, `source`, `value` and `items` are expressions for the values to encode, and `n` for a
    length. `required` is the name of a field that must not be null; None if null is allowed.
    """

    out = "out"  # the bytearray that the code being emitted writes to

    def write(self, code: str, value: str = "") -> None:
        """Add a fixed-size field to `self.run`: its `struct` code, and the expression `value`.

        The next `flush` emits the code that writes the field. The code ``x`` is a zero byte without a value.
        """
        self.run.append((code, value))

    def packed(self) -> str:
        """Empty `self.run`, and return an expression for the encoded bytes of its fields."""
        codes = "".join(code for code, _ in self.run)
        values = ", ".join(value for code, value in self.run if code != "x")
        self.run = []
        if not values:
            return repr(bytes(len(codes)))
        return f"{self.layout('pack', codes, Layout(f'>{codes}').pack)}({values})"

    def flush(self) -> None:
        if self.run:
            self.emit(f"{self.out} += {self.packed()}")

    def struct(self, cls: type[Struct], source: str) -> None:
        """Emit code that encodes the struct in the variable `source`.

        The last fields may stay in `self.run`, so the caller must call `flush`.
        """
        fields = [f for f in cls.__fields__ if f.in_version(self.version)]
        for field in fields:
            if field.tag is None:
                self.field(field, f"{source}.{field.name}")
        if self.flexible:
            self.tagged_section([f for f in fields if f.tag is not None], source)

    def field(self, field: Field, source: str) -> None:
        nullable = field.nullable_in(self.version)
        required = None if nullable else f"{self.message.__name__}.{field.name}"
        if field.is_array:
            self.array(field, source, required)
        elif not isinstance(field.type, Primitive):
            self.nested(field.type, source, nullable, is_tagged=field.tag is not None)
        elif field.type.code:
            self.write(field.type.code, source)
        elif field.type.name == "records":
            self.records(source, required)
        else:
            self.sized(field.type.name, source, required)

    def length(self, n: str, string: bool) -> None:
        """Emit code that writes the fields in `self.run`, and then the length in the variable `n`.

        If the version is flexible, `n` is the length plus one. `string` is true for the length of a string,
        and false for the length of bytes or of an array.
        """
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

    @contextmanager
    def unless_null(self, value: str, null_code: str, required: str | None) -> Iterator[None]:
        """Emit code that writes null; inside the `with` block, emit the code for a `value` that is not null.

        In a flexible version, null is a byte 0. In another version, it is -1 in the `struct` code
        `null_code`. If `required` is the name of a field, the code rejects null.
        """
        before = list(self.run)
        with self.block(f"if {value} is None:"):
            if required:
                self.emit(f"unexpected_null({required!r})")
            else:
                self.write("x" if self.flexible else null_code, "-1")
                self.flush()
        self.run = before
        with self.block("else:"):
            yield

    def sized(self, kind: str, source: str, required: str | None) -> None:
        """Emit code that encodes a string or bytes."""
        string = kind == "string"
        n, data = self.name("n"), self.name("data")
        self.emit(f"{data} = {source}")
        with self.unless_null(data, "h" if string else "i", required):
            if string:
                self.emit(f"{data} = {data}.encode()")
            self.emit(f"{n} = len({data}){' + 1' if self.flexible else ''}")
            self.length(n, string)
            self.emit(f"{self.out} += {data}")

    def records(self, source: str, required: str | None) -> None:
        data = self.name("data")
        self.emit(f"{data} = {source}")
        self.flush()
        with self.unless_null(data, "i", required):
            self.emit(f"out = put_records({data}, {self.flexible}, chunks, out)")

    def array(self, field: Field, source: str, required: str | None) -> None:
        n, items = self.name("n"), self.name("items")
        self.emit(f"{items} = {source}")
        with self.unless_null(items, "i", required):
            self.emit(f"{n} = len({items}){' + 1' if self.flexible else ''}")
            self.elements(field, n, items, may_be_encoded=source.startswith("message."))

    def elements(self, field: Field, n: str, items: str, *, may_be_encoded: bool) -> None:
        """Emit code that writes the length in `n`, and the elements of an array.

        If `may_be_encoded` is true, the array can also be an `EncodedItems`.
        """
        kind = field.type
        if isinstance(kind, Primitive) and kind.code in ("i", "q"):
            self.ints(kind.code, n, items)
            return
        self.length(n, string=False)
        item = self.name("item")
        if may_be_encoded and not isinstance(kind, Primitive):
            self.emit(f"if type({items}) is EncodedItems:")
            self.emit(f" {self.out} += {items}.content", f" {items} = ()")
        with self.block(f"for {item} in {items}:"):
            if isinstance(kind, Primitive):
                self.field(field.element(), item)
            else:
                self.struct(kind, item)
            self.flush()

    def ints(self, code: str, n: str, items: str) -> None:
        """Emit code that writes the fields in `self.run`, the array's length in `n`, and its integers.

        If the array is short, the code writes all of them with one `struct` call.
        """
        codes = "".join(code for code, _ in self.run)
        values = "".join(f"{value}, " for code, value in self.run if code != "x")
        writers = self.constant("writers", wire.IntWriters(codes, code, self.flexible))
        self.emit(f"if {n} <= {wire.SHORT_ARRAY}: {self.out} += {writers}[{n}]({values}{n}, *{items})")
        with self.block("else:"):
            self.length(n, string=False)
            self.emit(f"{self.out} += ints({code!r}, {items})")

    def nested(self, cls: type[Struct], source: str, nullable: bool, *, is_tagged: bool) -> None:
        """Emit code that encodes a struct.

        A nullable struct has a byte 1 before it. Null is a byte -1, or 0 in a tagged field.
        """
        item = self.name("item")
        self.emit(f"{item} = {source}")
        if not nullable:
            self.struct(cls, item)
            return
        self.flush()
        null = "b'\\x00'" if is_tagged else "b'\\xff'"
        self.emit(f"if {item} is None: {self.out} += {null}")
        with self.block("else:"):
            self.write("b", "1")
            self.struct(cls, item)
            self.flush()

    def tagged_section(self, fields: list[Field], source: str) -> None:
        """Emit code that encodes the tagged fields, in the order of their tags, without default values."""
        if not fields:
            self.write("x")
            return
        self.flush()
        count, section = self.name("n"), self.name("section")
        changed = {field.tag: self.changed(field, f"{source}.{field.name}") for field in fields}
        with self.block(f"if {' or '.join(changed.values())}:"):
            self.emit(f"{count} = 0", f"{section} = bytearray()")
            for field in sorted(fields, key=lambda f: f.tag or 0):
                with self.block(f"if {changed[field.tag]}:"):
                    content = self.tagged(field, f"{source}.{field.name}")
                    tag = wire.uvarint(field.tag or 0)
                    self.emit(f"{count} += 1", f"{section} += {tag!r} + uvarint(len({content})) + {content}")
            assert len(fields) < 128  # so that their number is one byte
            self.emit(f"{self.out}.append({count})", f"{self.out} += {section}")
        self.emit(f"else: {self.out}.append(0)")

    def changed(self, field: Field, value: str) -> str:
        """Return an expression that is true if a tagged field differs from its default.

        The expression compares identity first, for speed.
        """
        default = self.constant("default", field.default)
        return f"({value} is not {default} and {value} != {default})"

    def tagged(self, field: Field, source: str) -> str:
        """Emit code that encodes one field into a bytearray of its own; return the name of the bytearray."""
        outer, self.out = self.out, self.name("tagged")
        content = self.out
        self.emit(f"{content} = bytearray()")
        self.field(field, source)
        self.flush()
        self.out = outer
        return content
