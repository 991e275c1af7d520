"""Names of subjects and their contexts: ``:.staging:orders`` is the subject orders in the context .staging.

Each context has its own ids. A name without a context is in the default context, whose name is ``.``.
"""

from __future__ import annotations

import re

from barnabas.registry.errors import Code, RegistryError

DEFAULT_CONTEXT = "."

_QUALIFIED = re.compile(r":(\.[^:]*):(.*)", re.DOTALL)


def context_of(subject: str | None) -> str:
    """Return the context at the beginning of a subject's name.

    Return the default context if the name has none, or if `subject` is None.
    """
    match = _QUALIFIED.fullmatch(subject or "")
    return match[1] if match else DEFAULT_CONTEXT


def unqualified(subject: str) -> str:
    """Return `subject` without the default context. A name with another context does not change."""
    match = _QUALIFIED.fullmatch(subject)
    return match[2] if match and match[1] == DEFAULT_CONTEXT else subject


def canonical(subject: str) -> str:
    """Check a subject's name, and return its canonical form, which is without the default context.

    Raises:
        RegistryError: INVALID_SUBJECT if the name is empty or has control characters.
    """
    match = _QUALIFIED.fullmatch(subject)
    name = match[2] if match else subject
    if not name or any(ord(character) < 32 for character in name):
        raise RegistryError(
            Code.INVALID_SUBJECT, f"The specified subject '{subject}' is not a valid subject."
        )
    return unqualified(subject)


def canonical_scope(name: str) -> str:
    """Return the canonical form of a name in /config or /mode: a subject, or ``:.name:`` for a whole context.

    Raises:
        RegistryError: INVALID_SUBJECT if the name is empty or has control characters.
    """
    match = _QUALIFIED.fullmatch(name)
    is_context = match is not None and match[1] != DEFAULT_CONTEXT and not match[2]
    return name if is_context else canonical(name)


def in_context(subject: str, context: str) -> str:
    """Return the canonical name of `subject` in `context`. A context in `subject` itself takes precedence."""
    if context == DEFAULT_CONTEXT or _QUALIFIED.fullmatch(subject):
        return unqualified(subject)
    return f":{context}:{subject}"
