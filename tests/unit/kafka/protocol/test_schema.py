"""The declared classes, as their users see them."""

import pytest

from barnabas.kafka.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from barnabas.kafka.protocol.messages.offset_for_leader_epoch import EpochEndOffset
from barnabas.kafka.protocol.schema import (
    LATEST,
    Int32,
    Request,
    Response,
    String,
    Struct,
    since,
    tagged,
    until,
)


class Pet(Struct):
    name: String = ""
    age: Int32 | None = since(2, until=5, nullable=3, default=7)
    tags: list[String] = until(8, default=[])
    owner: String | None = tagged(3, since=4, default=None)


class PetRequest(Request, key=1000, versions=(1, 9), flexible=4):
    pets: list[Pet] = []  # noqa: RUF012


class PetResponse(Response, to=PetRequest):
    pet: Pet = Pet(name="Argos")


def test_a_declaration_says_where_each_field_exists() -> None:
    name, age, tags, owner = Pet.__fields__
    assert (name.since, name.until, name.tag, name.is_array) == (0, LATEST, None, False)
    assert [v for v in range(8) if age.in_version(v)] == [2, 3, 4, 5]
    assert [v for v in range(8) if age.nullable_in(v)] == [3, 4, 5, 6, 7]
    assert tags.is_array
    assert not tags.in_version(9)
    assert (owner.tag, owner.default) == (3, None)
    assert not name.nullable_in(9)


def test_a_response_has_the_key_and_versions_of_its_request() -> None:
    assert (PetResponse.api_key, PetResponse.versions, PetResponse.flexible_from) == (1000, (1, 9), 4)


def test_what_is_not_given_holds_the_default() -> None:
    pet = Pet(name="Laika")
    assert (pet.name, pet.age, pet.tags, pet.owner) == ("Laika", 7, [], None)


def test_lists_are_not_shared_between_messages() -> None:
    one, other = FetchRequest(), FetchRequest()
    one.topics.append(FetchTopic(topic="t"))
    assert other.topics == []


def test_a_default_struct_is_shared_and_refuses_change() -> None:
    with pytest.raises(AttributeError, match=r"assign a new ReplicaState\(\.\.\.\) instead"):
        FetchRequest().replica_state.replica_id = 3
    with pytest.raises(AttributeError):
        PetResponse().pet.name = "Hachiko"
    assert PetResponse().pet.name == "Argos"
    request = FetchRequest(replica_state=ReplicaState(replica_id=3))
    request.replica_state.replica_id = 4
    assert FetchRequest().replica_state == ReplicaState()


def test_unknown_names_are_refused() -> None:
    with pytest.raises(TypeError, match="offset"):
        FetchPartition(offset=3)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        FetchPartition().offset = 3  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        FetchPartition(3)  # type: ignore[misc]


def test_equality_is_by_class_and_value() -> None:
    assert FetchPartition(partition=1) == FetchPartition(partition=1)
    assert FetchPartition(partition=1) != FetchPartition(partition=2)
    assert EpochEndOffset() != PartitionData().diverging_epoch
    assert FetchPartition() != 1


def test_repr_shows_what_differs_from_the_defaults() -> None:
    partition = PartitionData(partition_index=3, records=bytes(100))
    assert repr(partition) == "PartitionData(partition_index=3, records=<100 bytes>)"
    assert repr(PetRequest(pets=[Pet(tags=["a"])])) == "PetRequest(pets=[Pet(tags=['a'])])"
