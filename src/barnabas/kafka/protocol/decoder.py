"""Compiles a message's declaration and one version into a function that decodes it.

Three things make the function fast, the largest gain first:

- one `struct` read for each run of fixed-size fields and the length byte that follows it;
- instances made by `object.__new__`, whose slots the function sets itself, without ``__init__``;
- nested structs inlined into loops.

The function does not check that each slice, such as a string, ends inside the buffer. If a slice would end
after the buffer, the position is also after the buffer. Then every later read fails, or, at the end of the
message, the comparison of the position with the buffer's length.
"""

from collections.abc import Callable
from struct import Struct as Layout
from typing import Any

from barnabas.base.errors import ProtocolError
from barnabas.kafka.protocol import wire
from barnabas.kafka.protocol.codegen import FunctionBuilder
from barnabas.kafka.protocol.schema import Field, Message, Primitive, Struct

Decoder = Callable[[wire.Readable, int], Any]
#: the third argument is the maximum number of elements; returns the message and its number of elements
CountingDecoder = Callable[[wire.Readable, int, int], tuple[Any, int]]

_INT_READERS = {code: wire.int_readers(code) for code in "iq"}
_NAMES = {
    **{function.__name__: function for function in (
        wire.read_uvarint, wire.read_string, wire.read_bytes, wire.read_array_length, wire.check_array_length,
        wire.read_ints, wire.read_tag_count, wire.skip_tags, wire.unexpected_null, wire.skip_counted_tags,
        wire.too_many_elements,
    )},
    **{f"read_{code}": readers for code, readers in _INT_READERS.items()},
    "ProtocolError": ProtocolError,
    "new": object.__new__,
}  # fmt: skip


def compile_decoder(message: type[Message], version: int) -> Decoder:
    """Return ``decode(buffer, position)``, which reads to the end of the buffer and returns a `message`."""
    decoder: Decoder = _compile(_Compiler(message, version, dict(_NAMES)))
    return decoder


def compile_counting_decoder(message: type[Message], version: int) -> CountingDecoder:
    """Return ``decode(buffer, position, max_elements)``: like `compile_decoder`, for large messages.

    ``decode`` returns the message and the number of its elements (see `wire.MAX_ELEMENTS`). It raises
    TooManyElements as soon as there are more than `max_elements` elements.
    """
    decoder: CountingDecoder = _compile(_CountingCompiler(message, version, dict(_NAMES)))
    return decoder


def _compile(compiler: "_Compiler") -> Any:
    message, version = compiler.message, compiler.version
    compiler.struct(message, "message")
    compiler.flush()
    head = ["view = memoryview(buffer)"] if compiler.has_records else []
    beyond = f"not pos <= len(buffer) <= pos + {message.slack}" if message.slack else "pos != len(buffer)"
    error = f"ProtocolError(f'{message.__name__} v{version} ended at byte {{pos}} of {{len(buffer)}}')"
    tail = [f"if {beyond}: raise {error}", f"return {compiler.result}"]
    return compiler.function("decode", compiler.parameters, head, tail)


class _Compiler(FunctionBuilder):
    """Emits the code that decodes one message.

    In its methods, `target` is the expression to which the code assigns a value. `kind` is "string", "bytes"
    or "records". `required` is the name of a field that must not be null; None if null is allowed.
    """

    parameters = "buffer, pos"
    result = "message"
    has_records = False

    def count(self, n: str) -> None:
        """Do nothing. A compiler of counting decoders emits code here that counts elements or tagged fields.

        `n` is the expression for their number.
        """

    def skip_tags(self) -> str:
        """Return the statement that skips tagged fields when the message knows none."""
        return "pos = skip_tags(buffer, pos)"

    def read(self, code: str, target: str) -> None:
        """Add a fixed-size field with the `struct` code `code` to `self.run`.

        The next `flush` emits the code that reads the field and assigns its value to `target`.
        """
        self.run.append((code, target))

    def flush(self, keep: int = 0) -> None:
        """Emit code that reads all fields in `self.run` with one `struct` call, and empty `self.run`.

        The emitted code leaves `pos` before the last `keep` bytes of these fields.
        """
        if not self.run:
            return
        codes = "".join(code for code, _ in self.run)
        targets = ", ".join(target for _, target in self.run)
        layout = Layout(f">{codes}")
        unpack = self.layout("unpack", codes, layout.unpack_from)
        self.emit(f"{targets}, = {unpack}(buffer, pos)", f"pos += {layout.size - keep}")
        self.run = []

    def peek(self) -> str:
        """Emit code that reads the collected fixed-size fields (`self.run`), and the byte after them.

        The emitted code leaves `pos` before this byte. Return the name of the variable that has the byte.
        """
        n = self.name("n")
        if self.run:
            self.read("B", n)
            self.flush(keep=1)
        else:
            self.emit(f"{n} = buffer[pos]")
        return n

    def struct(self, cls: type[Struct], target: str) -> None:
        """Emit code that creates an instance of `cls` in the variable `target`, and decodes its fields.

        The last fields may stay in `self.run`, so the caller must call `flush`.
        """
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
        nullable = field.nullable_in(self.version)
        required = None if nullable else f"{self.message.__name__}.{field.name}"
        if field.is_array:
            self.array(field, target, required)
        elif not isinstance(field.type, Primitive):
            self.nested(field.type, target, nullable, is_tagged=field.tag is not None)
        elif field.type.code:
            self.read(field.type.code, target)
        elif self.flexible and field.type.name != "records":
            self.compact(field.type.name, target, required)
        else:
            self.sized(field.type.name, target, required)

    def compact(self, kind: str, target: str, required: str | None) -> None:
        """Emit code that decodes a compact string or compact bytes. If they are short, the code is inline."""
        n = self.peek()
        data = "buffer[pos + 1:stop]"
        value = f"{data}.decode('utf-8', 'replace')" if kind == "string" else f"bytes({data})"
        self.emit(
            f"if 0 < {n} < 128:",
            f" stop = pos + {n}",
            f" {target} = {value}",
            " pos = stop",
            *([] if required else [f"elif not {n}: {target} = None; pos += 1"]),
            f"else: {target}, pos = read_{kind}(buffer, pos, {required!r})",
        )

    def sized(self, kind: str, target: str, required: str | None) -> None:
        """Emit code that decodes records, or a string or bytes of a version that is not flexible."""
        self.has_records |= kind == "records"
        n = self.name("n")
        if self.flexible:
            high = self.peek()
            self.emit(
                f"{n} = buffer[pos + 1]",
                f"if {high} > 127 and {n} < 128: {n} = ({high} & 127 | {n} << 7) - 1; pos += 2",
                f"else: {n}, pos = read_uvarint(buffer, pos); {n} -= 1",
            )
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
            f"else: {f'unexpected_null({required!r})' if required else f'{target} = None'}",
        )

    def array(self, field: Field, target: str, required: str | None) -> None:
        n = self.array_length(required)
        if required:
            self.elements(field, target, n)
        else:
            self.emit(f"if {n} < 0: {target} = None")
            with self.block("else:"):
                self.elements(field, target, n)

    def array_length(self, required: str | None) -> str:
        """Emit code that reads an array's length. Return the name of the variable with the length.

        The length is negative for null. The code checks that a long array fits the remaining bytes. It does
        not check a short length, because reading the elements soon fails at the end of the buffer. If
        `required` is the name of a field, the code rejects null.
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

    def elements(self, field: Field, target: str, n: str) -> None:
        """Emit code that decodes the `n` elements of an array."""
        kind = field.type
        self.count(n)
        if isinstance(kind, Primitive) and kind.code in _INT_READERS:
            self.emit(
                f"if {n} <= {wire.SHORT_ARRAY}: {target} = [*read_{kind.code}[{n}](buffer, pos)]",
                f"else: {target} = read_ints({kind.code!r}, buffer, pos, {n})",
                f"pos += {Layout('>' + kind.code).size} * {n}",
            )
            return
        items, item = self.name("items"), self.name("item")
        self.emit(f"{target} = {items} = []")
        with self.block(f"for _ in range({n}):"):
            if isinstance(kind, Primitive):
                self.field(field.element(), item)
            else:
                self.struct(kind, item)
            self.flush()
            self.emit(f"{items}.append({item})")

    def nested(self, cls: type[Struct], target: str, nullable: bool, *, is_tagged: bool) -> None:
        """Emit code that decodes a struct of the class `cls`, and assigns it to `target`, a piece of source.

        A nullable struct has a byte 1 before it. Null is a byte below 0; in a tagged field also 0.
        """
        item = self.name("item")
        if not nullable:
            self.struct(cls, item)
            self.emit(f"{target} = {item}")
            return
        marker = self.name("n")
        self.read("b", marker)
        self.flush()
        self.emit(f"if {marker} {'<=' if is_tagged else '<'} 0: {target} = None")
        with self.block("else:"):
            self.struct(cls, item)
            self.flush()
            self.emit(f"{target} = {item}")

    def tagged_section(self, cls: type[Struct], target: str, known: list[Field]) -> None:
        if not known and not self.run:
            self.emit(f"if buffer[pos]: {self.skip_tags()}", "else: pos += 1")
            return
        count = self.peek()
        if not known:
            self.emit(f"if {count}: {self.skip_tags()}", "else: pos += 1")
            return
        tag, stop = self.name("tag"), self.name("stop")
        wrong_size = f"ProtocolError(f'tag {{{tag}}} of {cls.__name__} has a wrong size')"
        self.emit(f"if not {count}: pos += 1")
        with self.block("else:"):
            self.emit(f"{count}, pos = read_tag_count(buffer, pos)")
            self.count(count)
            with self.block(f"for _ in range({count}):"):
                self.emit(
                    f"{tag}, pos = read_uvarint(buffer, pos)",
                    f"{stop}, pos = read_uvarint(buffer, pos)",
                    f"{stop} += pos",
                )
                for index, field in enumerate(known):
                    with self.block(f"{'elif' if index else 'if'} {tag} == {field.tag}:"):
                        self.field(field, f"{target}.{field.name}")
                        self.flush()
                self.emit(f"else: pos = {stop}", f"if pos != {stop}: raise {wrong_size}")


class _CountingCompiler(_Compiler):
    parameters = "buffer, pos, max_elements"
    result = "message, max_elements - left"

    def __init__(self, message: type[Message], version: int, names: dict[str, Any]) -> None:
        super().__init__(message, version, names)
        self.emit("left = max_elements")

    def count(self, n: str) -> None:
        self.emit(f"left -= {n}", "if left < 0: too_many_elements()")

    def skip_tags(self) -> str:
        return "pos, left = skip_counted_tags(buffer, pos, left)"
