"""Users from Kerberos principals: the rules of Hadoop, which Kafka uses, too."""

from __future__ import annotations

import pytest

from barnabas.base.errors import ConfigError
from barnabas.broker.logins.kerberos import ShortNames

REALM = "EXAMPLE.COM"


def names(*rules: str) -> ShortNames:
    return ShortNames(rules, REALM)


@pytest.mark.parametrize(
    ("rule", "principal", "user"),
    [
        ("DEFAULT", "alice@EXAMPLE.COM", "alice"),
        ("DEFAULT", "kafka/b1.example.com@EXAMPLE.COM", "kafka"),
        ("DEFAULT", "alice@OTHER.COM", None),
        ("DEFAULT", "alice", "alice"),  # of no realm
        ("DEFAULT", "a/b/c@EXAMPLE.COM", None),
        ("RULE:[1:$1]", "alice@OTHER.COM", "alice"),
        ("RULE:[1:$1]", "alice/admin@OTHER.COM", None),
        ("RULE:[2:$1]", "alice/admin@OTHER.COM", "alice"),
        ("RULE:[2:$1;$2](^.*;admin$)s/;admin$//", "alice/admin@EXAMPLE.COM", "alice"),
        ("RULE:[2:$1;$2](^.*;admin$)s/;admin$//", "alice/root@EXAMPLE.COM", None),
        ("RULE:[1:$1@$0](.*@OTHER.COM)s/@.*//", "alice@OTHER.COM", "alice"),
        ("RULE:[1:$1@$0](.*@OTHER.COM)s/@.*//", "alice@OTHER.COMPANY", None),
        ("RULE:[1:$1@$0]", "alice@OTHER.COM", None),  # what it makes is no short name
        ("RULE:[1:$1]/L", "Alice@EXAMPLE.COM", "alice"),
        ("RULE:[1:$1](A.*)s/^/svc-/U", "Alice@EXAMPLE.COM", "SVC-ALICE"),
        ("RULE:[1:$1]s/a/b/", "banana@EXAMPLE.COM", "bbnana"),
        ("RULE:[1:$1]s/a/b/g", "banana@EXAMPLE.COM", "bbnbnb"),
        ("RULE:[1:$1]s/(.)(.*)/$2-$1/", "alice@EXAMPLE.COM", "lice-a"),
        ("RULE:[1:$1]s/.*//", "alice@EXAMPLE.COM", None),
        (r"RULE:[1:$1](\w+)", "alice@EXAMPLE.COM", "alice"),
        ("RULE:[1:$1](\\w+)", "\u0430lice@EXAMPLE.COM", None),  # Cyrillic
        (r"RULE:[1:$1]s/\d//g", "a1\u0661@EXAMPLE.COM", "a\u0661"),
    ],
)
def test_a_rule_makes_a_user_of_a_principal(rule: str, principal: str, user: str | None) -> None:
    assert names(rule).of(principal) == user


def test_the_first_rule_that_fits_holds() -> None:
    rules = names("RULE:[2:$1-$2]", "RULE:[1:$1@$0](.*@OTHER.COM)s/@.*/-other/", "DEFAULT")
    users = [rules.of(f"{name}@{realm}") for name in ("kafka/b1", "alice") for realm in (REALM, "OTHER.COM")]
    assert users == ["kafka-b1", "kafka-b1", "alice", "alice-other"]


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "default",
        "RULE:$1",
        "RULE:[1:$2]",
        "RULE:[\u0661:$1]",
        "RULE:[1:$1](()",
        "RULE:[1:$1](*)",
        "RULE:[1:$1]s/*//",
        "RULE:[1:$1]s/a/$1/",
        "RULE:[1:$1]s/a/b/X",
    ],
)
def test_what_is_no_rule_is_refused_with_its_text(rule: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.kerberos\.principal\.to\.local\.rules has '"):
        names("DEFAULT", rule)
