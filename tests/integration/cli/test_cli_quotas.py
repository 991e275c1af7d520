"""`barnabas quotas` against a broker."""

from __future__ import annotations

import pytest


def test_quotas_are_set_listed_and_removed(barnabas):
    barnabas("quotas", "set", "--of-user", "bea", "--any-client-id", "producer_byte_rate=2000000")
    barnabas("quotas", "set", "--of-ip", "192.0.2.9", "connection_creation_rate=10")
    listed = barnabas("quotas", "list", "--json").json()
    assert {"of": {"user": "bea", "client-id": None}, "quotas": {"producer_byte_rate": 2000000}} in listed
    assert {"of": {"ip": "192.0.2.9"}, "quotas": {"connection_creation_rate": 10}} in listed
    assert "user bea, any client-id" in barnabas("quotas", "list").out
    barnabas("quotas", "set", "--of-user", "bea", "--any-client-id", "--remove", "producer_byte_rate")
    barnabas("quotas", "set", "--of-ip", "192.0.2.9", "--remove", "connection_creation_rate")
    assert not any(each["of"].get("user") == "bea" for each in barnabas("quotas", "list", "--json").json())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["producer_byte_rate=1"], "name whose quotas"),
        (["--of-user", "ann"], "nothing to do"),
        (["--of-user", "ann", "--any-user", "producer_byte_rate=1"], "exclude each other"),
        (["--of-user", "ann", "producer_byte_rate=fast"], "write a number"),
        (["--of-user", "ann", "producer_byte_rate=1", "--remove", "producer_byte_rate"], "twice"),
    ],
)
def test_what_cannot_be_set_is_told_at_once(barnabas, words, told):
    assert told in barnabas("quotas", "set", *words, code=2).err


def test_what_the_broker_refuses_is_told(barnabas):
    assert "there is no quota" in barnabas("quotas", "set", "--of-user", "ann", "speed=1", code=1).err
