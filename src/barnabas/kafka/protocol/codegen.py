"""Shared parts of the two compilers: collect the lines of a function, and compile them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from barnabas.kafka.protocol.schema import Message


class FunctionBuilder:
    """Collects the source of a function for one version of a message, and compiles this source.

    `namespace` has the global names that the function uses. A run is a sequence of fixed-size fields that one
    `struct` layout can read or write. Each field is a pair (struct code, expression).
    """

    def __init__(self, message: type[Message], version: int, names: dict[str, Any]) -> None:
        self.message = message
        self.version = version
        self.flexible = version >= message.flexible_from
        self.namespace = names
        self.run: list[tuple[str, str]] = []
        self._lines: list[str] = []
        self._depth = 1
        self._count = 0

    def emit(self, *lines: str) -> None:
        self._lines += [" " * self._depth + line for line in lines]

    @contextmanager
    def block(self, opening: str = "") -> Iterator[None]:
        """Emit the line that opens a block, and indent all lines emitted inside."""
        if opening:
            self.emit(opening)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, prefix: str) -> str:
        """Return a name that is not used yet."""
        self._count += 1
        return f"{prefix}{self._count}"

    def constant(self, prefix: str, value: Any) -> str:
        """Return a name for a value that cannot be written in source text."""
        for name, known in self.namespace.items():
            if known is value:
                return name
        name = self.name(prefix)
        self.namespace[name] = value
        return name

    def layout(self, verb: str, codes: str, function: Callable[..., Any]) -> str:
        """Make the `struct` function `function` known to the compiled source. Return its name there.

        The name is `verb` and the `struct` codes, such as ``unpack_iqB``.
        """
        name = f"{verb}_{codes.replace('?', 'o')}"
        self.namespace[name] = function
        return name

    def function(self, verb: str, parameters: str, head: list[str], tail: list[str]) -> Any:
        """Compile `head`, the emitted lines and `tail` as a function with `parameters`; return the function.

        `verb` is the beginning of the function's name, for tracebacks.
        """
        name = f"{verb}_{self.message.__name__}_v{self.version}"
        lines = [*(f" {line}" for line in head), *self._lines, *(f" {line}" for line in tail)]
        source = "\n".join([f"def {name}({parameters}):", *lines])
        exec(compile(source, f"<{name}>", "exec"), self.namespace)
        return self.namespace[name]
