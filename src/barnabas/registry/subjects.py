"""Names of subjects and their contexts: ``:.staging:orders`` is the subject orders in the context .staging.

Each context has ids of its own. A name without a context is in the default one, whose name is ``.``.
"""

from __future__ import annotations

import re

from barnabas.registry.errors import Code, RegistryError

DEFAULT_CONTEXT = "."

_QUALIFIED = re.compile(r":(\.[^:]*):(.*)", re.DOTALL)


def context_of(subject: str | None) -> str:
    """The context that a subject's name begins with."""
    match = _QUALIFIED.fullmatch(subject or "")
    return match[1] if match else DEFAULT_CONTEXT


def canonical(subject: str) -> str:
    """The canonical form of a subject's name.

    Raises:
        RegistryError: INVALID_SUBJECT for one that is empty or holds control characters.
    """
    match = _QUALIFIED.fullmatch(subject)
    name = match[2] if match else subject
    if not name or any(ord(character) < 32 for character in name):
        raise RegistryError(
            Code.INVALID_SUBJECT, f"The specified subject '{subject}' is not a valid subject."
        )
    return name if match and match[1] == DEFAULT_CONTEXT else subject


def in_context(subject: str, context: str) -> str:
    """The full name of `subject` within `context`, unless it names a context itself."""
    if context == DEFAULT_CONTEXT or _QUALIFIED.fullmatch(subject):
        return subject
    return f":{context}:{subject}"
