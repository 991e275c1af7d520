"""Makes the command that installs Barnabas. Messages, help and the check of the documentation use it."""

from __future__ import annotations

#: whether a package index has Barnabas; `tests/docs/test_installation.py` holds all pages to it
PUBLISHED = False


def pip_command(*extras: str) -> str:
    """Return the command that installs Barnabas with these extras."""
    requirement = ("barnabas" if PUBLISHED else ".") + (f"[{','.join(extras)}]" if extras else "")
    return f"pip install '{requirement}'" if extras else f"pip install {requirement}"


def pip_install(*extras: str, quote: str = "") -> str:
    """Return `pip_command` with `quote` before and after it.

    Until Barnabas is published, the text also says to run the command in a checkout of Barnabas.
    """
    return f"{quote}{pip_command(*extras)}{quote}{'' if PUBLISHED else ' in a checkout of Barnabas'}"
