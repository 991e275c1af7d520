"""Declarations of Kafka protocol messages: one annotated class for all versions of a message.

    class FetchTopic(Struct):
        topic: String = until(12, default="")
        topic_id: Uuid = since(13, default=ZERO_UUID)
        partitions: list[FetchPartition] = []

A field's annotation is its wire type: ``list[...]`` is an array, ``| None`` a value that may be null. The
field's default is its value in a new message, and in a decoded message whose version lacks the field. `since`
and `until` give the versions of a field. `tagged` makes it a tagged field (KIP-482). ``nullable=`` gives the
first version that allows null, if the field itself is older.

Instances have keyword-only construction, mutable slots, ``==`` and ``repr``. `barnabas.kafka.protocol.codec`
compiles the same declaration into a decoder and an encoder for each version.
"""

from collections.abc import Callable, Sequence
from types import GenericAlias
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias, dataclass_transform

from barnabas.base.types import Buffer, Chunk

LATEST = 0x7FFF  # a version above every version: "and later"


class Primitive(NamedTuple):
    """A wire type: its name, and its `struct` code if it has a fixed size."""

    name: str
    code: str = ""


Bool: TypeAlias = Annotated[bool, Primitive("bool", "?")]
Int8: TypeAlias = Annotated[int, Primitive("int8", "b")]
Int16: TypeAlias = Annotated[int, Primitive("int16", "h")]
Int32: TypeAlias = Annotated[int, Primitive("int32", "i")]
Int64: TypeAlias = Annotated[int, Primitive("int64", "q")]
Float64: TypeAlias = Annotated[float, Primitive("float64", "d")]
String: TypeAlias = Annotated[str, Primitive("string")]
Bytes: TypeAlias = Annotated[bytes, Primitive("bytes")]
#: 16 bytes; all zero means "none".
Uuid: TypeAlias = Annotated[bytes, Primitive("uuid", "16s")]
#: Record batches, opaque here. Decodes to a memoryview of the frame; encodes any buffer of bytes.
Records: TypeAlias = Annotated[Buffer, Primitive("records")]
#: Record batches, opaque here. Encodes one buffer, or a sequence of buffers that follow one another; large
#: ones are sent without a copy. Decodes to a memoryview of the frame.
RecordChunks: TypeAlias = Annotated[Buffer | Sequence[Chunk], Primitive("records")]

ZERO_UUID = bytes(16)

_NONE = type(None)


class Field(NamedTuple):
    """One field of a struct, from which the codecs are compiled.

    Attributes:
        type: type of the field, or of the elements if the field is an array.
        since, until: first and last version of the message that have the field.
        nullable_since: first version of the message in which the field may be null; ``LATEST + 1`` if none.
        tag: number of a tagged field; None for other fields.
    """

    name: str
    type: "Primitive | type[Struct]"
    is_array: bool
    default: Any
    since: int = 0
    until: int = LATEST
    nullable_since: int = LATEST + 1
    tag: int | None = None

    def in_version(self, version: int) -> bool:
        return self.since <= version <= self.until

    def nullable_in(self, version: int) -> bool:
        return version >= self.nullable_since

    def element(self) -> "Field":
        """Return the field of one element of this array. Elements are never null."""
        return self._replace(is_array=False, nullable_since=LATEST + 1)


class _Placement(NamedTuple):
    """The default, the versions and the tag of a field, as `since`, `until` or `tagged` declares them."""

    default: Any
    since: int = 0
    until: int = LATEST
    nullable: int | None = None
    tag: int | None = None


def since(version: int, *, default: Any, until: int = LATEST, nullable: int | None = None) -> Any:
    """Declare a field that exists from `version` to `until`, inclusive.

    New messages, and decoded messages of other versions, have the value `default`. If the annotation has
    ``| None``, the field may be null from version `nullable` on. By default it may be null in all of its
    versions.
    """
    return _Placement(default, version, until, nullable)


def until(version: int, *, default: Any, nullable: int | None = None) -> Any:
    """Declare a field that exists up to and including `version`.

    New messages, and decoded messages of later versions, have the value `default`. If the annotation has
    ``| None``, the field may be null from version `nullable` on. By default it may be null in all of its
    versions.
    """
    return _Placement(default, 0, version, nullable)


def tagged(tag: int, *, since: int, default: Any) -> Any:
    """Declare a field with tag `tag` that exists from version `since` on.

    A message contains the field only if its value is not the default.
    """
    return _Placement(default, since, tag=tag)


def _field(name: str, annotation: Any, declared: Any) -> Field:
    placement = declared if isinstance(declared, _Placement) else _Placement(declared)
    default, since, until, nullable, tag = placement
    nullable_since = LATEST + 1
    if _NONE in getattr(annotation, "__args__", ()):  # X | None
        nullable_since = since if nullable is None else nullable
        annotation = annotation.__args__[0]
    is_array = isinstance(annotation, GenericAlias)  # list[X]
    if is_array:
        annotation = annotation.__args__[0]
    kind: Primitive | type[Struct]
    kind = annotation if isinstance(annotation, type) else annotation.__metadata__[0]
    if isinstance(default, Struct):
        default = _shared(default)
    return Field(name, kind, is_array, default, since, until, nullable_since, tag)


@dataclass_transform(kw_only_default=True, field_specifiers=(since, until, tagged))
class StructType(type):
    """Turns the annotations of a `Struct` into slots and `__fields__`: a `Field` for each, in their order."""

    __fields__: tuple[Field, ...]

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> "StructType":
        # Python 3.14 keeps annotations behind a function (PEP 649); 1 asks it for their values.
        annotate = namespace.get("__annotate_func__")
        annotations = annotate(1) if annotate else namespace.get("__annotations__", {})
        wire = {n: a for n, a in annotations.items() if getattr(a, "__origin__", None) is not ClassVar}
        fields = tuple(_field(n, a, namespace.pop(n)) for n, a in wire.items())
        cls = super().__new__(mcs, name, bases, {**namespace, "__slots__": tuple(wire)}, **options)
        if fields:
            cls.__fields__ = fields
        return cls


class Struct(metaclass=StructType):
    """A group of fields. Its constructor takes keywords; omitted fields have the protocol's default."""

    __fields__: ClassVar[tuple[Field, ...]] = ()

    def __init__(self, **values: Any) -> None:
        # Compiled at the first use of each class, so that importing the messages stays cheap.
        cls = type(self)
        init = _compile_init(cls)
        cls.__init__ = init  # type: ignore[method-assign]
        init(self, **values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or self.__fields__ is not other.__fields__:
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.__fields__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Show only fields that differ from the defaults, and long ones by their length."""
        values = ((f.name, getattr(self, f.name), f.default) for f in self.__fields__)
        shown = ", ".join(f"{name}={_show(value)}" for name, value, default in values if value != default)
        return f"{type(self).__name__}({shown})"


class Message(Struct):
    """A base class of messages: structs that are not part of another struct.

    Each class declares `versions`: its first and its last version.
    """

    versions: ClassVar[tuple[int, int]]
    flexible_from: ClassVar[int]
    """First version with compact lengths and tagged fields (KIP-482); above `versions` when there is none."""
    slack: ClassVar[int]
    """The maximum number of bytes after the message. It is above 0 if some client is known to send more."""

    def __init_subclass__(cls, *, versions: tuple[int, int], flexible: int = LATEST, slack: int = 0) -> None:
        cls.versions, cls.flexible_from, cls.slack = versions, flexible, slack


class Request(Message, versions=(0, 0)):
    """A base class of requests.

    `api_key` is the number of its API, and `api_name` its name in the protocol (``ListOffsets``).
    """

    api_key: ClassVar[int]
    api_name: ClassVar[str]

    def __init_subclass__(cls, *, key: int, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.api_key = key
        cls.api_name = cls.__name__.removesuffix("Request")


class Response(Message, versions=(0, 0)):
    """A base class of responses. A response has the API key and the versions of its request."""

    api_key: ClassVar[int]

    def __init_subclass__(cls, *, to: type[Request]) -> None:
        super().__init_subclass__(versions=to.versions, flexible=to.flexible_from)
        cls.api_key = to.api_key


_ABSENT: Any = type("_Absent", (), {"__repr__": lambda _: "..."})()


def _compile_init(cls: type[Struct]) -> Callable[..., None]:
    """Return an ``__init__`` with a keyword for each field.

    If the default is an empty list, each instance gets its own new list.
    """
    namespace: dict[str, Any] = {"_ABSENT": _ABSENT}
    parameters, body = [], []
    for field in cls.__fields__:
        name = field.name
        if field.default == [] and field.is_array:
            parameters.append(f"{name}=_ABSENT")
            body.append(f"    self.{name} = [] if {name} is _ABSENT else {name}")
        else:
            namespace[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
            body.append(f"    self.{name} = {name}")
    lines = [f"def __init__(self, *, {', '.join(parameters)}):" if parameters else "def __init__(self):"]
    exec("\n".join(lines + (body or ["    pass"])), namespace)
    init: Callable[..., None] = namespace["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _shared(default: Struct) -> Struct:
    """Return a copy of `default` that all messages can share: setting one of its fields raises an error."""
    cls = type(default)

    def refuse(self: Struct, name: str, value: Any) -> None:
        raise AttributeError(
            f"this {cls.__name__} is a shared default: assign a new {cls.__name__}(...) instead"
        )

    frozen: Any = type.__new__(StructType, cls.__name__, (cls,), {"__slots__": ()})
    shared: Struct = frozen(**{f.name: getattr(default, f.name) for f in cls.__fields__})
    frozen.__setattr__ = refuse
    return shared


def _show(value: Any) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)) and len(value) > 32:
        return f"<{len(value)} bytes>"
    if isinstance(value, list) and len(value) > 8:
        return f"<{len(value)} elements>"
    if isinstance(value, str) and len(value) > 100:
        return f"<{len(value)} characters: {value[:20]!r}...>"
    return repr(value)
