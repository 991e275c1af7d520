"""Text that came from outside, made fit for a line of the log."""

from __future__ import annotations

#: how many characters of one untrusted text a line shows
MAX_SHOWN = 200


def shown(text: object, most: int = MAX_SHOWN) -> str:
    """`text` on one line: what cannot be printed is escaped, and what is longer than `most` is cut.

    Every name, id and reason that a client gives goes through here before it is logged: it could end the line
    and forge the next one, or hold what a terminal takes for a command.
    """
    raw = str(text)
    cut = raw[: most + 1]
    if not cut.isprintable():
        cut = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)
    if len(raw) > most or len(cut) > most:
        return f"{cut[:most]}... ({len(raw)} characters)"
    return cut
