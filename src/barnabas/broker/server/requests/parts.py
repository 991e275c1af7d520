"""Finds the objects of the broker that request handlers use, by their types (dependency injection)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_type_hints

T = TypeVar("T")


class Parts:
    """The parts of one broker, by their types.

    A part is an object that the broker creates once, for example its group coordinator. `get` finds a part by
    its class or by a base class. It can also create a dataclass of parts: each field gets the part of its
    type. For example, ``get(Ports)`` returns the dataclass `Ports` of a request handler.

    Args:
        parts: parts of the broker, in any order; None for a part that the broker does not have.
    """

    def __init__(self, parts: Iterable[object]) -> None:
        self._found: dict[type, list[object]] = {NoneType: [None]}
        self.add(*parts)

    def add(self, *parts: object) -> None:
        """Add parts that handlers can use."""
        for part in parts:
            if part is not None:
                for kind in type(part).__mro__:
                    self._found.setdefault(kind, []).append(part)

    def get(self, kind: type[T], whose: str = "the broker") -> T:
        """Return the only part with the type `kind`.

        If no part has this type, and `kind` is a dataclass, create an instance of `kind` whose fields are
        parts. Later calls return this instance.

        Args:
            kind: class or base class of the part; or a dataclass.
            whose: what requires the part, for the error message.

        Raises:
            TypeError: no part has the type `kind` or the type of a field, or several parts have it.
        """
        found: list[Any] = self._found.get(kind, [])
        if not found and is_dataclass(kind):
            found = self._found[kind] = [self._make(kind)]
        if len(found) != 1:
            several = " and ".join(type(part).__name__ for part in found)
            found_instead = f"{several} are of this type" if found else "no part of the broker has this type"
            raise TypeError(f"{whose} requires {kind.__qualname__}: {found_instead}")
        part: T = found[0]
        return part

    def _make(self, kind: Any) -> object:
        types = get_type_hints(kind)
        given = [field.name for field in fields(kind) if field.init]
        whose = f"{kind.__module__}.{kind.__qualname__}"
        return kind(**{name: self.of(types[name], f"{whose}.{name}") for name in given})

    def of(self, annotation: Any, whose: str) -> object:
        """Return the object of the broker (the *part*) that has the type in an annotation.

        If the annotation is a dataclass that is no part, return an instance whose fields are parts (`get`).

        Args:
            annotation: the type of a field: a class, or ``X | None``. For ``X | None``, the result is None if
                the broker has no part of type X.
            whose: name of the field that requires the part, for the error message.

        Raises:
            TypeError: no part has the type, or several have it.
        """
        if isinstance(annotation, UnionType):
            kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
            if not self._found.keys() & kinds:
                return None
            (annotation,) = kinds
        return self.get(annotation, whose)
