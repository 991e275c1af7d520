"""Descriptors as text, from which protoc makes the same descriptors again."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from barnabas.registry.protobuf.descriptors import link, same
from barnabas.registry.protobuf.protoc import MAIN, compile_files
from barnabas.registry.protobuf.text import write

F = FieldDescriptorProto
_SCALARS = [
    F.TYPE_DOUBLE, F.TYPE_FLOAT, F.TYPE_INT64, F.TYPE_UINT64, F.TYPE_INT32, F.TYPE_FIXED64, F.TYPE_FIXED32,
    F.TYPE_BOOL, F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_UINT32, F.TYPE_SFIXED32, F.TYPE_SFIXED64, F.TYPE_SINT32,
]  # fmt: skip
_KEYS = [F.TYPE_STRING, F.TYPE_INT32, F.TYPE_BOOL, F.TYPE_FIXED64]
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
#: few, so that names in one scope hide those of another
_NAMES = ["A", "B", "C", "google", "a"]


def round_trip(text: str, *references: tuple[str, str]) -> str:
    files = compile_files(text, references)
    written = write(files[MAIN], link(files))
    again = compile_files(written, references)
    assert same(MAIN, files, again)
    assert write(again[MAIN], link(again)) == written
    return written


class _Builder:
    """Declares items in the order of a text, so that there is one text for the descriptor."""

    def __init__(self, draw, file):
        self.draw, self.file = draw, file
        self.count = 0
        self.messages = []
        self.enums = []
        self.wanting = []

    def one_of(self, *items):
        return self.draw(st.sampled_from(items))

    def number(self):
        self.count += 1
        return self.count

    def message(self, message, scope, depth):
        full = f"{scope}.{message.name}"
        self.messages.append(full)
        names = list(_NAMES)
        for _ in range(self.draw(st.integers(0, 4))):
            kinds = ["field", "field", "map", "oneof", "optional", "enum", "reserved"]
            if depth and names:
                kinds += ["message", "message"] + (["group"] if self.file.syntax == "" else [])
            kind = self.one_of(*kinds)
            if kind == "message":
                name = names.pop(self.draw(st.integers(0, len(names) - 1)))
                self.message(message.nested_type.add(name=name), full, depth - 1)
            elif kind == "enum":
                self.enum(message.enum_type.add(), full)
            elif kind == "reserved":
                message.reserved_name.append(f"gone{self.number()}")
                first = 1000 + self.number() * 10
                message.reserved_range.add(start=first, end=first + self.one_of(1, 5))
            elif kind == "oneof" and self.file.syntax != "":
                self.oneof(message)
            elif kind == "optional" and self.file.syntax == "proto3":
                self.field(message, proto3_optional=True)
            elif kind == "map":
                self.map(message, full)
            elif kind == "group":
                self.group(message, full, depth)
            else:
                self.field(message)
        if self.file.syntax == "":
            message.extension_range.add(start=5000, end=self.one_of(5001, 6000, 2**29))

    def field(self, message, **more):
        number = self.number()
        field = message.field.add(
            name=self.one_of("f{}", "f_x{}", "f__{}_").format(number), number=number, **more
        )
        labels = [F.LABEL_OPTIONAL, F.LABEL_REPEATED] + [F.LABEL_REQUIRED] * (self.file.syntax == "")
        field.label = F.LABEL_OPTIONAL if more else self.one_of(*labels)
        field.type = self.one_of(*_SCALARS, F.TYPE_MESSAGE, F.TYPE_ENUM)
        if field.type in (F.TYPE_MESSAGE, F.TYPE_ENUM):
            self.wanting.append(field)  # of a type that may not be declared yet
        elif field.label != F.LABEL_REPEATED and self.file.syntax != "proto3" and self.draw(st.booleans()):
            field.default_value = self.default(field.type)
        if self.draw(st.booleans()):
            field.options.deprecated = True
        if self.draw(st.booleans()):
            field.json_name = f"json{number}"
        return field

    def default(self, kind):
        if kind == F.TYPE_STRING:
            return self.draw(_TEXTS)
        if kind == F.TYPE_BYTES:
            return self.one_of("", "\\001\\377", '\\"\\\\', "plain")
        if kind == F.TYPE_BOOL:
            return self.one_of("true", "false")
        if kind in (F.TYPE_DOUBLE, F.TYPE_FLOAT):
            return self.one_of("0", "-1.5", "1e+20", "inf", "-inf", "nan")
        return self.one_of("0", "7")

    def oneof(self, message):
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"one{self.number()}")
        for _ in range(self.draw(st.integers(1, 3))):
            self.field(message, oneof_index=index)

    def map(self, message, scope):
        number = self.number()
        entry = message.nested_type.add(name=f"M{number}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=F.LABEL_OPTIONAL, type=self.one_of(*_KEYS))
        value = entry.field.add(name="value", number=2, label=F.LABEL_OPTIONAL)
        value.type = self.one_of(*_SCALARS, F.TYPE_MESSAGE)
        if value.type == F.TYPE_MESSAGE:
            self.wanting.append(value)
        message.field.add(
            name=f"m{number}", number=number, label=F.LABEL_REPEATED, type=F.TYPE_MESSAGE,
            type_name=f"{scope}.{entry.name}",
        )  # fmt: skip

    def group(self, message, scope, depth):
        number = self.number()
        nested = message.nested_type.add(name=f"G{number}")
        message.field.add(
            name=nested.name.lower(), number=number, label=self.one_of(F.LABEL_OPTIONAL, F.LABEL_REPEATED),
            type=F.TYPE_GROUP, type_name=f"{scope}.{nested.name}",
        )  # fmt: skip
        self.message(nested, scope, depth - 1)

    def enum(self, enum, scope):
        enum.name = f"E{self.number()}"
        self.enums.append(f"{scope}.{enum.name}")
        for number in range(self.draw(st.integers(1, 3))):
            enum.value.add(name=f"{self.one_of('V', 'A')}{self.number()}", number=number)
        if self.draw(st.booleans()):
            enum.options.allow_alias = True
            enum.value.add(name=f"V{self.number()}", number=0)
        if self.draw(st.booleans()):
            first = self.one_of(10, 2**31 - 1)
            enum.reserved_range.add(start=first, end=self.one_of(first, 2**31 - 1))

    def finish(self):
        for field in self.wanting:
            if field.type == F.TYPE_ENUM and not self.enums:
                field.type = F.TYPE_MESSAGE
            field.type_name = self.one_of(*(self.enums if field.type == F.TYPE_ENUM else self.messages))
        for message in _all(self.file.message_type):
            # what `optional` is made of comes behind all other oneofs
            for field in message.field:
                if field.proto3_optional:
                    field.oneof_index = len(message.oneof_decl)
                    message.oneof_decl.add(name=f"_{field.name}")


def _all(messages):
    for message in messages:
        yield message
        yield from _all(message.nested_type)


@st.composite
def files(draw):
    file = FileDescriptorProto(
        name=MAIN,
        syntax=draw(st.sampled_from([None, "proto3", "editions"])),
        package=draw(st.sampled_from([None, "X", "a.b", "B.google"])),
    )
    if file.syntax == "editions":
        file.edition = 1000
    if draw(st.booleans()):
        file.options.java_package = draw(_TEXTS)
    build = _Builder(draw, file)
    scope = f".{file.package}" if file.package else ""
    for name in draw(st.lists(st.sampled_from(_NAMES), min_size=1, max_size=3, unique=True)):
        build.message(file.message_type.add(name=name), scope, depth=2)
    if draw(st.booleans()):
        build.enum(file.enum_type.add(), scope)
    build.finish()
    if draw(st.booleans()):
        service = file.service.add(name="S")
        for number in range(draw(st.integers(0, 2))):
            taken, given = (draw(st.sampled_from(build.messages)) for _ in range(2))
            method = service.method.add(name=f"R{number}", input_type=taken, output_type=given)
            method.server_streaming = draw(st.booleans())
            method.client_streaming = draw(st.booleans())
    if file.syntax == "":
        for number, extended in enumerate(build.messages[: draw(st.integers(0, 3))]):
            label, kind = draw(st.sampled_from([F.LABEL_OPTIONAL, F.LABEL_REPEATED])), F.TYPE_INT32
            file.extension.add(name=f"x{number}", number=5000, extendee=extended, label=label, type=kind)
    return file


@settings(max_examples=examples(20, 600))  # each is a run of protoc
@given(files())
def test_what_is_written_is_compiled_to_the_same(file):
    given_files = {MAIN: file}
    written = write(file, link(given_files))
    again = compile_files(written, [])
    assert same(MAIN, given_files, again), written
    assert write(again[MAIN], link(again)) == written


@pytest.mark.parametrize(
    "name",
    [
        *("string", "group", "map", "message", "enum", "oneof", "option", "optional", "required", "repeated"),
        *("reserved", "extend", "extensions", "stream", "export", "local"),
    ],
)
def test_a_type_whose_name_means_something_else_is_not_taken_for_that(name):
    text = """
    edition = "2024"; package p; option features.enforce_naming_style = STYLE_LEGACY;
    message NAME { message In {} }
    message M {
      p.NAME a = 1; repeated p.NAME b = 2; p.NAME.In c = 3; map<int32, p.NAME> d = 4;
      oneof o { p.NAME e = 5; }
      extensions 10 to 20;
    }
    extend p.M { p.NAME f = 10; }
    service S { rpc R(p.NAME) returns (stream p.NAME); }
    """
    round_trip(text.replace("NAME", name))


OPTIONS = (
    "options.proto",
    """
    syntax = "proto2"; package options; import "google/protobuf/descriptor.proto";
    enum Mood { GOOD = 0; BAD = 1; }
    message Note { optional string text = 1; repeated int32 n = 2; optional Note inner = 3;
      extensions 10 to 20; }
    extend Note { optional bool loud = 10; }
    extend google.protobuf.FieldOptions {
      optional double weight = 50001; repeated Mood mood = 50002; optional bytes raw = 50003;
      optional Note note = 50004; optional bool on = 50005; optional string said = 50006;
      optional int64 i = 50007; optional float small = 50008;
    }
    extend google.protobuf.EnumValueOptions { optional Note value_note = 50004; }
    extend google.protobuf.OneofOptions { optional Note oneof_note = 50004; }
    extend google.protobuf.ExtensionRangeOptions { optional Note range_note = 50004; }
    extend google.protobuf.MethodOptions { optional Note method_note = 50004; }
    """,
)


@pytest.mark.parametrize(
    "option",
    [
        "weight) = 1e300", "weight) = -inf", "weight) = nan", "weight) = 3", "small) = 0.1", "on) = true",
        "mood) = BAD, (options.mood) = GOOD", r'raw) = "a\001\"\\\xff"', r'said) = "\"\\\n\x7f Grüße 🎉"',
        "i) = -9223372036854775808", "note) = {}",
        'note) = { text: "a\\"b" n: [1, 2] inner { [options.loud]: true } }', "note).inner.inner.n = 5",
    ],
)  # fmt: skip
def test_options_of_all_types_are_kept(option):
    written = round_trip(
        f'syntax = "proto3"; import "options.proto"; message M {{ string a = 1 [(options.{option}]; }}',
        OPTIONS,
    )
    assert "(options." in written


def test_options_are_kept_wherever_they_may_be():
    note = "= { text: 'x' }"
    written = round_trip(
        f"""
        syntax = "proto2"; package options.more;
        import "options.proto"; import "google/protobuf/descriptor.proto";
        extend google.protobuf.MessageOptions {{ optional string mine = 60001; }}
        message M {{
          option (mine) = "here";
          extensions 10 to 20, 30 [(range_note) {note}];
          oneof o {{ option (oneof_note) {note}; int32 a = 1; group G = 2 [deprecated = true] {{}} }}
          map<string, string> m = 3 [(note) {note}];
        }}
        enum E {{ A = 0 [(value_note) {note}]; option deprecated = true; }}
        service S {{
          option deprecated = true;
          rpc R(M) returns (stream M) {{ option (method_note) {note}; option deprecated = true; }}
        }}
        """,
        OPTIONS,
    )
    assert written.count('{ text: "x" }') == 6
    assert 'option (mine) = "here";' in written


@pytest.mark.parametrize(
    "text",
    [
        # groups among extensions, beside messages whose order must stay
        """
        syntax = "proto2";
        message A { extensions 10 to max; message B {} map<string, B> m = 1; message C {}
          repeated group D = 2 {} message F {}
          extend A { optional group X = 11 { optional B b = 1; } } message Z {} }
        extend A { optional group Y = 12 {} }
        message Last {}
        """,
        'syntax = "proto2"; message S { option message_set_wire_format = true; extensions 4 to max; }',
        """
        edition = "2023"; package p; option features.field_presence = IMPLICIT;
        message M { reserved gone, other; M m = 1 [features.message_encoding = DELIMITED];
          repeated int32 p = 2 [features.repeated_field_encoding = EXPANDED];
          int32 d = 3 [features.field_presence = EXPLICIT, default = 4]; }
        """,
        """
        edition = "2024"; package p;
        export message M { local enum E { E_A = 0; } E e = 1; } local message N {}
        """,
        'syntax = "proto3"; import weak "google/protobuf/any.proto"; import public "google/type/date.proto";',
        'syntax = "proto3"; message M { oneof o { M m = 1; } M.M2 b = 2; message M2 { M m = 1; } }',
        'syntax = "proto3"; message M {} service S { rpc R(M) returns (M) {} rpc T(M) returns (M) {;} }',
    ],
)  # fmt: skip
def test_what_protobuf_has_seldom_is_kept(text):
    round_trip(text)
