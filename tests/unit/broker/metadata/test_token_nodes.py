"""Delegation tokens in the store, with the paths and formats of Apache Kafka on ZooKeeper."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.memory_store import MemoryStore
from simulation.virtual_time import run_virtual

from barnabas.broker.logins.delegation_tokens import DelegationToken, TokenKeys
from barnabas.broker.metadata import MetadataLoader, token_nodes, znodes
from barnabas.broker.metadata.store import Create
from barnabas.kafka.security.principal import Principal

ALICE, BOB = Principal("alice"), Principal("bob smith*")
TOKEN = DelegationToken("t1", ALICE, ALICE, (BOB,), 1, 3, 2)


def test_a_token_lies_where_kafka_had_it_as_kafka_wrote_it():
    assert token_nodes.path("t1") == "/delegation_token/tokens/t1"
    assert json.loads(token_nodes.encode(TOKEN)) == {
        "version": 3,
        "owner": "User%3Aalice",
        "tokenRequester": "User%3Aalice",
        "renewers": ["User%3Abob%20smith%2A"],
        "issueTimestamp": 1,
        "maxTimestamp": 3,
        "expiryTimestamp": 2,
        "tokenId": "t1",
    }
    assert znodes.is_secret(token_nodes.path("t1"))


def test_a_token_that_kafka_wrote_before_others_could_create_it_is_its_owners():
    old = {**json.loads(token_nodes.encode(TOKEN)), "version": 1}
    del old["tokenRequester"]
    assert token_nodes.decode("t1", json.dumps(old).encode()) == TOKEN


names = st.builds(Principal, st.text(min_size=1), st.just("User"))


@given(
    st.builds(
        DelegationToken,
        st.just("t1"),
        names,
        names,
        st.lists(names).map(tuple),
        *[st.integers(0, 2**62)] * 3,
    )
)
def test_what_is_written_is_read(token):
    assert token_nodes.decode("t1", token_nodes.encode(token)) == token


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"owner":"alice"}', b'{"owner":1}'])
def test_a_token_that_cannot_be_read_is_none(data, caplog):
    assert token_nodes.decode("t1", data) is None
    assert "/delegation_token/tokens/t1 cannot be read" in caplog.text


def test_an_image_has_the_tokens_of_the_store():
    async def scenario() -> None:
        store = MemoryStore()
        await store.multi([Create(folder) for folder in znodes.FOLDERS])
        await store.create(token_nodes.path("t1"), token_nodes.encode(TOKEN))
        loader = MetadataLoader(store)
        await loader.start()
        assert dict(loader.image.delegation_tokens) == {"t1": TOKEN}
        await store.set(token_nodes.path("t1"), token_nodes.encode(TOKEN._replace(expires_ms=3)))
        assert (await loader.settled()).delegation_tokens["t1"].expires_ms == 3
        await store.set(token_nodes.path("t1"), b"damaged")
        assert not (await loader.settled()).delegation_tokens
        await store.delete(token_nodes.path("t1"))
        await loader.settled()
        await loader.stop()

    run_virtual(scenario())


def test_a_tokens_password_is_that_of_apache_kafka():
    """HmacSHA512 of the id with the secret key (``createBase64HMAC``), as `openssl dgst -hmac` makes it."""
    keys = TokenKeys("secret")
    assert keys.password("t1") == (
        "KPGiNkGlRT0fCUU+9TA5Utg4Wb2jMqjBqQukAFhbEToEj+cHZXQvID3rfDk6/AhDmt7oNKHJb11mUBnIxfUoCQ=="
    )
    assert keys.belongs(keys.hmac("t1"), TOKEN)
    assert not keys.belongs(keys.hmac("t2"), TOKEN)
    assert not keys.belongs(b"", TOKEN)
