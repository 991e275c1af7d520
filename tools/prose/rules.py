"""The rules of prose: rules of Simplified Technical English that a program can check, and words to avoid.

Each rule is a check of proselint with a name below `barnabas.`. Some of proselint's own checks are also used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from proselint.checks import __register__ as checks_of_proselint
from proselint.config import Config
from proselint.registry import CheckRegistry
from proselint.registry.checks import Check, CheckFlags, CheckResult
from proselint.registry.checks.engine import Fancy
from proselint.registry.checks.types import CheckType, ExistenceSimple, PreferredForms
from tools.prose.texts import CODE, DOCSTRING, HEADING, UNIT

LONGEST = 25

_WORD = re.compile(r"\w")
_MARKS = f"{DOCSTRING}{UNIT}{HEADING}"
#: a sentence ends with a full stop before a space, or where another piece of prose starts
_SENTENCE = re.compile(rf"[^\s{_MARKS}](?:[^{_MARKS}.!?\n]|\n(?!\n)|[.!?](?![\s\"')]))*(?:[.!?][\"')]*)?")
_RELATIVE = "What|Where|How|As|Who|Whoever|Which|That|By|So"

#: A home-made word or an idiom, and the word of the field. Patterns ignore case.
WORDS = {
    r"(?:controller's|the) seat": "the controller election, the controller epoch",
    r"(?:delayed )?waiters": "delayed operations",
    r"the turns": "a lock for each key",
    r"roster": "members",
    r"look-?outs?|looks? out for": "busy polling, wait for",
    r"(?:bears?|carries|carry) (?:a|an|the|its|their|no)": "has, contains",
    r"go(?:es)? before": "overrides, takes precedence over",
    r"passed over|passes? over": "ignored, skipped",
    r"fall(?:s|en)? silent|fell silent": "session timed out",
    r"ways? through": "data flow, request path",
    r"(?:what|that) is (?:owed|open)": "pending",
    r"(?:into|in) being": "create, exist",
    r"in (?:the |another's |its )?stead": "instead of",
    r"minds? the case": "ignore case",
    r"(?:is|are) no name for": "is not a valid name of",
    r"by commas": "separated by commas",
    r"nobody|no one": "no client, no broker: name the actor",
    r"somebody|someone|everybody": "a client, a user: name the actor",
    r"without a look|at a look|have a look|a look at": "read, check",
    r"(?:is|are|was|were) told (?:of|that|which|what)": "receives, reads",
    r"hears? of|heard of|hears? from": "receives",
    r"wakes? up to|comes? to know": "learns, receives",
    r"(?:it|this|that) is for": "name the purpose",
    r"makes? do with": "uses",
    r"in vain": "without effect",
    r"and be it|be it": "even if",
    r"lies? (?:in|at|on|below|beside)": "is in",
    r"has (?:it )?that": "says",
    r"does away with|do away with": "removes",
    r"stand(?:s)? for": "means",
    r"holds? up": "delays",
    r"at the latest(?! offset)": "within",
    r"as if nothing had happened": "name the result",
    r"ever so|none the less|nonetheless|thereby|thereof|whereupon|whence|hence": "a plain word",
}


def _sentences(text: str) -> Iterator[re.Match[str]]:
    return _SENTENCE.finditer(text)


def _long(text: str, check: Check) -> Iterator[CheckResult]:
    for sentence in _sentences(text):
        words = sum(1 for word in sentence[0].split() if _WORD.search(word) or CODE in word)
        if words > LONGEST:
            yield CheckResult(check.path, check.message.format(words), sentence.span(), None)


def _opening(text: str, check: Check) -> Iterator[CheckResult]:
    """Yield sentences that begin with "What" and are not questions, outside of headings."""
    for match in re.finditer(rf"(?:[{UNIT}]|[.!])\s+(What(?:ever)?\b[^.!?{_MARKS}]*)(.|$)", text):
        if match[2] != "?":
            yield CheckResult(check.path, check.message.format(match[1]), match.span(1), None)


def _check(name: str, kind: CheckType, message: str) -> Check:
    return Check(kind, Fancy(), f"barnabas.{name}", message, CheckFlags(allow_quotes=name == "length"))


OURS = (
    _check("length", _long, f"a sentence of {{}} words: split it (at most {LONGEST})"),
    _check(
        "docstring",
        ExistenceSimple(rf"{DOCSTRING} (?:{_RELATIVE})\b[^\n]*"),
        "{}: open with a verb or a noun, not with a relative clause",
    ),
    _check("opening", _opening, "{}: put the subject first"),
    _check(
        "words",
        PreferredForms({f"(?:{pattern})": better for pattern, better in WORDS.items()}),
        "{1}: say {0}",
    ),
    _check(
        "passive",
        ExistenceSimple(
            r"\b(?:is|are|was|were|be|been|being)\s+(?:\w+ly\s+)?"
            r"(?:\w{2,}ed|made|done|given|taken|kept|written|read|sent|held|known|seen|found|shown|told|chosen|lost"
            r"|put|set|built|bound|brought|cut)\s+by\s+(?!default|itself|themselves|hand|name|its\b|their\b)\w+"
        ),
        "{}: the actor stands before the verb",
    ),
    _check(
        "inverted",
        ExistenceSimple(r"\b(?:is|are|was|were) (?:what|whatever|where|who|that which)\b"),
        "{}: name the thing instead of a relative clause",
    ),
)

#: proselint's own checks that fit technical prose
THEIRS = (
    "archaism", "cliches", "industrial_language.bureaucratese", "industrial_language.corporate_speak",
    "malapropisms", "misc.pretension", "mondegreens", "needless_variants",
    "nonwords", "oxymorons", "redundancy", "social_awareness", "spelling",
)  # fmt: skip

CONFIG = Config(max_errors=100_000, checks=dict.fromkeys(("barnabas", *THEIRS), True))


def register() -> None:
    """Add the rules to proselint, once in a process."""
    registry = CheckRegistry()
    if not registry.checks:
        registry.register_many((*OURS, *checks_of_proselint))
