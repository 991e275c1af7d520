"""The REST API, request by request, as Confluent documents it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest
from tests.integration.registry.conftest import B_REQUIRED, A, B, record

V1 = "application/vnd.schemaregistry.v1+json"


def text(schema):
    return json.dumps(schema, separators=(",", ":"))


def refused(answer):
    return answer.status, answer.body["error_code"]


def test_a_schema_is_registered_once_and_found_again(registry):
    assert registry.register("s", record(A)) == registry.register("s", record(A)) == 1
    assert registry.register("other", record(A)) == 1
    assert registry.register("s", record(A, B)) == 2
    assert registry("GET", "/subjects").body == ["other", "s"]
    assert registry("GET", "/subjects/s/versions").body == [1, 2]
    latest = registry("GET", "/subjects/s/versions/latest").body
    assert {k: latest[k] for k in ("subject", "version", "id", "schema")} == {
        "subject": "s",
        "version": 2,
        "id": 2,
        "schema": text(record(A, B)),
    }
    assert "schemaType" not in latest
    assert registry("GET", "/subjects/s/versions/-1").body == latest
    assert registry("GET", "/subjects/s/versions/1/schema").body == record(A)
    found = registry("POST", "/subjects/s", {"schema": json.dumps(record(A))}).body
    assert (found["version"], found["id"]) == (1, 1)
    by_id = registry("GET", "/schemas/ids/1").body
    assert by_id["schema"] == text(record(A))
    assert registry("GET", f"/schemas/guids/{by_id['guid']}").body["schema"] == text(record(A))
    assert registry("GET", "/schemas/ids/2?fetchMaxId=true").body["maxId"] == 2
    assert registry("GET", "/schemas/ids/1/schema").body == record(A)
    assert registry("GET", "/schemas/ids/1/subjects").body == ["other", "s"]
    assert registry("GET", "/schemas/ids/1/versions").body == [
        {"subject": "other", "version": 1},
        {"subject": "s", "version": 1},
    ]
    assert registry("GET", "/schemas/types").body == ["JSON", "PROTOBUF", "AVRO"]
    assert [v["version"] for v in registry("GET", "/schemas?subjectPrefix=s").body] == [1, 2]
    assert [v["version"] for v in registry("GET", "/schemas?latestOnly=true").body] == [1, 2]
    assert registry("GET", "/subjects?offset=1&limit=1").body == ["s"]
    assert registry("GET", "/").body == {}
    assert "kafka-cluster" in registry("GET", "/v1/metadata/id").body["scope"]["clusters"]


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/subjects/none/versions", None, 40401),
        ("GET", "/subjects/none/versions/1", None, 40401),
        ("GET", "/subjects/s/versions/9", None, 40402),
        ("GET", "/subjects/s/versions/0", None, 42202),
        ("GET", "/subjects/s/versions/one", None, 42202),
        ("GET", "/schemas/ids/99", None, 40403),
        ("GET", "/schemas/ids/x", None, 404),
        ("GET", "/schemas/guids/x", None, 40403),
        ("POST", "/subjects/s", {"schema": '"int"'}, 40403),
        ("POST", "/subjects/none", {"schema": '"int"'}, 40401),
        ("POST", "/subjects/s/versions", {"schema": '{"type":"nothing"}'}, 42201),
        ("POST", "/subjects/none/versions", {"schema": ""}, 42201),
        ("POST", "/subjects/none/versions", {}, 42201),
        ("POST", "/subjects/s", {"schema": ""}, 40403),
        ("POST", "/subjects/s/versions", {"schema": 5}, 42201),
        ("POST", "/subjects/s/versions", {"schema": text(record({**A, "default": "x"}))}, 42201),
        ("POST", "/subjects/s/versions", {"schema": "message M {", "schemaType": "PROTOBUF"}, 42201),
        ("POST", "/subjects/s/versions", {"schema": '"int"'}, 409),
        ("POST", "/subjects/s/versions", {"schema": '"int"', "references": [{"name": "n"}]}, 422),
        ("POST", "/subjects/s/versions", {"schema": '"int"', "id": 7}, 42205),
        ("POST", "/subjects/s/versions", b"{", 400),
        ("POST", "/subjects/s/versions", b"[]", 400),
        ("POST", "/subjects/s/versions", {"schema": "[" * 100_000}, 42201),
        ("DELETE", "/subjects/none", None, 40401),
        ("DELETE", "/subjects/s?permanent=true", None, 40405),
        ("DELETE", "/subjects/s/versions/1?permanent=true", None, 40407),
        ("DELETE", "/subjects/s/versions/8", None, 40402),
        ("GET", "/config/s", None, 40408),
        ("DELETE", "/config/s", None, 40401),
        ("PUT", "/config", {"compatibility": "SIDEWAYS"}, 42203),
        ("PUT", "/config", {}, 42203),
        ("PUT", "/config", {"compatibilityGroup": "g"}, 422),
        ("GET", "/mode/s", None, 40409),
        ("DELETE", "/mode/s", None, 40401),
        ("PUT", "/mode", {"mode": "WRITE"}, 42204),
        ("PUT", "/mode", {"mode": "IMPORT"}, 42205),
        ("PUT", "/mode/s", {"mode": "READONLY_OVERRIDE"}, 42205),
        ("POST", "/compatibility/subjects/s/versions/7", {"schema": '"int"'}, 40402),
        ("POST", "/compatibility/subjects/none/versions/7", {"schema": '"int"'}, 40402),
        ("POST", "/compatibility/subjects/s/versions", {"schema": "none"}, 42201),
        ("GET", "/nowhere", None, 404),
        ("PATCH", "/subjects", {}, 405),
    ],
)
def test_what_is_wrong_has_confluents_code(unchanged, method, path, body, code):
    answer = unchanged(method, path, body)
    status = code if code < 1000 else code // 100
    assert refused(answer) == (status, code)
    assert answer.body["message"]
    assert unchanged("GET", "/subjects/s/versions").body == [1]


def test_a_subject_is_deleted_softly_then_for_good(registry):
    registry.register("s", record(A))
    registry.register("s", record(A, B))
    registry("PUT", "/config/s", {"compatibility": "NONE"})
    assert registry("DELETE", "/subjects/s").body == [1, 2]
    assert registry("GET", "/subjects").body == []
    assert registry("GET", "/subjects?deleted=true").body == ["s"]
    assert registry("GET", "/subjects?deletedOnly=true").body == ["s"]
    assert refused(registry("GET", "/subjects/s/versions")) == (404, 40401)
    assert registry("GET", "/subjects/s/versions/1?deleted=true").body["deleted"] is True
    assert refused(registry("DELETE", "/subjects/s")) == (404, 40404)
    assert refused(registry("GET", "/config/s")) == (404, 40408)
    assert registry("GET", "/schemas/ids/1").status == 200, "its data may still lie in topics"
    assert registry.register("s", record(A)) == 1
    assert registry("GET", "/subjects/s/versions").body == [3]
    registry("DELETE", "/subjects/s")
    assert registry("DELETE", "/subjects/s?permanent=true").body == [1, 2, 3]
    assert refused(registry("GET", "/schemas/ids/1")) == (404, 40403)
    assert registry.register("s", record(A)) == 3, "an id is never given out again"
    assert registry("GET", "/subjects/s/versions").body == [1]


def test_a_version_is_deleted_softly_then_for_good(registry):
    registry.register("s", record(A))
    registry.register("s", record(A, B))
    assert registry("DELETE", "/subjects/s/versions/latest").body == 2
    assert registry("GET", "/subjects/s/versions").body == [1]
    assert registry("GET", "/subjects/s/versions?deletedOnly=true").body == [2]
    assert refused(registry("DELETE", "/subjects/s/versions/2")) == (404, 40406)
    assert registry("DELETE", "/subjects/s/versions/2?permanent=true").body == 2
    assert refused(registry("DELETE", "/subjects/s/versions/2")) == (404, 40402)
    assert registry.register("s", record(A, B)) == 3


def test_what_is_referred_to_stays(registry):
    assert registry.register("base", record(A, name="Base")) == 1
    reference = {"name": "Base", "subject": "base", "version": -1}
    user = record({"name": "base", "type": "Base"}, name="User")
    assert registry.register("user", user) == 42201
    assert registry.register("user", user, references=[reference]) == 2
    assert registry("GET", "/schemas/ids/2").body["references"] == [{**reference, "version": 1}]
    assert registry("GET", "/subjects/base/versions/1/referencedby").body == [2]
    assert refused(registry("DELETE", "/subjects/base")) == (422, 42206)
    assert refused(registry("DELETE", "/subjects/base/versions/1")) == (422, 42206)
    assert registry("DELETE", "/subjects/user").body == [1]
    assert registry("DELETE", "/subjects/base").body == [1]
    assert refused(registry("DELETE", "/subjects/base?permanent=true")) == (422, 42206)
    registry("DELETE", "/subjects/user?permanent=true")
    assert registry("DELETE", "/subjects/base?permanent=true").body == [1]


@pytest.mark.parametrize(
    ("level", "steps", "last"),
    [
        ("BACKWARD", [record(A)], record(A, B)),
        ("FORWARD", [record(A)], record(A, B_REQUIRED)),
        ("FULL", [record(A)], record(A, B)),
        ("NONE", [record(A)], "int"),
        ("BACKWARD", [record(A, B_REQUIRED), record(A), record(A, B)], record(A, B)),
        ("FORWARD_TRANSITIVE", [record(A)], record(A, B_REQUIRED)),
        ("FULL_TRANSITIVE", [record(A)], record(A, B)),
    ],
)
def test_a_level_lets_pass_what_it_should(registry, level, steps, last):
    assert registry("PUT", "/config", {"compatibility": level.lower()}).body == {"compatibility": level}
    for step in [*steps, last]:
        assert registry.register("s", step) < 100


@pytest.mark.parametrize(
    ("level", "steps", "last"),
    [
        ("BACKWARD", [record(A)], record(A, B_REQUIRED)),
        ("FORWARD", [record(A, B_REQUIRED)], record(A)),
        ("FULL", [record(A)], record(A, B_REQUIRED)),
        ("FULL", [record(A, B_REQUIRED)], record(A)),
        # each step is compatible with the one before it, the last not with the first
        ("BACKWARD_TRANSITIVE", [record(A), record(A, B)], record(A, B_REQUIRED)),
        ("FORWARD_TRANSITIVE", [record(A, B_REQUIRED), record(A, B)], record(A)),
    ],
)
def test_a_level_stops_what_it_should(registry, level, steps, last):
    registry("PUT", "/config", {"compatibility": level})
    for step in steps:
        assert registry.register("s", step) < 100
    assert registry.register("s", last) == 409
    if level.endswith("_TRANSITIVE"):
        registry("PUT", "/config/s", {"compatibility": level.removesuffix("_TRANSITIVE")})
        assert registry.register("s", last) < 100


def test_compatibility_is_told_without_registering(registry):
    registry.register("s", record(A))
    path = "/compatibility/subjects/s/versions"
    good, bad = {"schema": json.dumps(record(A, B))}, {"schema": json.dumps(record(A, B_REQUIRED))}
    assert registry("POST", f"{path}/latest", good).body == {"is_compatible": True}
    assert registry("POST", path, bad).body == {"is_compatible": False}
    told = registry("POST", f"{path}/1?verbose=true", bad).body
    assert told["is_compatible"] is False
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in told["messages"][0]
    assert "/fields/1" in told["messages"][0]
    assert registry("POST", "/compatibility/subjects/none/versions", bad).body == {"is_compatible": True}
    assert registry("GET", "/subjects/s/versions").body == [1]


def test_json_schemas_are_registered_and_checked(registry):
    one = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    two = {**one, "properties": {**one["properties"], "b": {"type": "string"}}}
    assert registry.register("j", one, schemaType="JSON") == 1
    assert registry("GET", "/subjects/j/versions/1").body["schemaType"] == "JSON"
    assert registry.register("j", two, schemaType="JSON") == 2
    assert registry.register("j", one, schemaType="JSON") == 1, "it is there already"
    three = {**two, "required": ["b"]}
    assert registry.register("j", three, schemaType="JSON") == 409
    assert registry.register("j", record(A)) == 409, "another type is no newer version"


def test_settings_of_subjects_win_until_they_are_taken_back(registry):
    assert registry("GET", "/config").body == {"compatibilityLevel": "BACKWARD"}
    registry("PUT", "/config", {"compatibility": "FULL"})
    assert registry("GET", "/config/s?defaultToGlobal=true").body == {"compatibilityLevel": "FULL"}
    registry("PUT", "/config/s", {"compatibility": "NONE", "normalize": True})
    assert registry("GET", "/config/s").body == {"compatibilityLevel": "NONE", "normalize": True}
    assert registry("DELETE", "/config/s").body == {"compatibilityLevel": "NONE", "normalize": True}
    assert registry("DELETE", "/config").body == {"compatibilityLevel": "FULL"}
    assert registry("GET", "/config").body == {"compatibilityLevel": "BACKWARD"}


def test_normalized_schemas_are_one(registry):
    one, other = {"type": "int", "x": 1, "y": 2}, {"type": "int", "y": 2, "x": 1}
    assert registry.register("a", one) == 1
    assert registry.register("a", other) == 2
    registry("PUT", "/config/b", {"normalize": True})
    assert registry.register("b", other) == registry.register("b", one) == 1


def test_a_read_only_subject_takes_nothing(registry):
    registry.register("s", record(A))
    assert registry("PUT", "/mode/s", {"mode": "READONLY"}).body == {"mode": "READONLY"}
    assert registry.register("s", record(A, B)) == 42205
    assert refused(registry("DELETE", "/subjects/s")) == (422, 42205)
    assert registry.register("t", record(A)) == 1
    assert registry("DELETE", "/mode/s").body == {"mode": "READONLY"}
    assert registry.register("s", record(A, B)) == 2
    registry("PUT", "/mode", {"mode": "READONLY"})
    assert registry("GET", "/mode").body == registry("GET", "/mode/s?defaultToGlobal=true").body
    assert registry.register("s", record(A, B, name="S")) == 42205


def test_schemas_are_imported_with_their_ids(registry):
    assert registry("PUT", "/mode/s", {"mode": "IMPORT"}).status == 200
    assert registry.register("s", record(A)) == 42205
    assert registry.register("s", record(A), id=42, version=7) == 42
    assert registry.register("s", '"int"', id=42, version=8) == 42205, "the id stands for something else"
    assert registry("GET", "/subjects/s/versions").body == [7]
    registry("DELETE", "/mode/s")
    assert registry.register("s", record(A, B)) == 43
    assert registry("GET", "/subjects/s/versions").body == [7, 8]


def test_contexts_have_ids_of_their_own(registry):
    assert registry.register("s", record(A)) == 1
    assert registry.register(":.staging:s", '"int"') == 1
    assert registry("GET", "/contexts").body == [".", ".staging"]
    assert registry("GET", "/subjects").body == [":.staging:s", "s"]
    assert registry("GET", "/subjects?subjectPrefix=:.staging:").body == [":.staging:s"]
    assert registry("GET", "/schemas/ids/1?subject=:.staging:s").body["schema"] == '"int"'
    assert registry("GET", "/schemas/ids/1").body["schema"] == text(record(A))


def test_an_id_that_only_another_context_has_is_found_there_with_its_subjects_and_versions(registry):
    registry.register(":.staging:s", '"int"')
    assert registry("GET", "/schemas/ids/1").body["schema"] == '"int"'
    assert registry("GET", "/schemas/ids/1/subjects").body == [":.staging:s"]
    assert registry("GET", "/schemas/ids/1/versions").body == [{"subject": ":.staging:s", "version": 1}]


def test_subjects_may_have_any_name(registry):
    assert registry.register("a%2Fb%20c%3F", record(A)) == 1
    assert registry("GET", "/subjects").body == ["a/b c?"]
    assert registry("GET", "/subjects/a%2Fb%20c%3F/versions").body == [1]
    assert registry.register("%00", record(A)) == 42208


def test_metadata_and_rules_come_back_as_they_went(registry):
    metadata = {"properties": {"owner": "billing"}}
    rules = {"domainRules": [{"name": "r", "kind": "CONDITION", "type": "CEL", "mode": "WRITE", "expr": "x"}]}
    assert registry.register("t", record(A)) == 1
    assert registry.register("s", record(A), metadata=metadata, ruleSet=rules) == 2, "it is another schema"
    found = registry("GET", "/schemas/ids/2").body
    assert (found["metadata"], found["ruleSet"]) == (metadata, rules)
    path = "/subjects/s/metadata?key=owner&value="
    assert registry("GET", f"{path}billing").body["version"] == 1
    assert refused(registry("GET", f"{path}nobody")) == (404, 40403)


def test_version_takes_metadata_and_rules_that_it_lacks_from_the_newest_version(registry):
    metadata = {"properties": {"owner": "billing"}}
    rules = {"domainRules": [{"name": "r", "kind": "CONDITION", "type": "CEL", "mode": "WRITE", "expr": "x"}]}
    assert registry.register("s", record(A), metadata=metadata, ruleSet=rules) == 1
    assert registry.register("s", record(A)) == 1
    assert registry("POST", "/subjects/s", {"schema": text(record(A))}).body["version"] == 1
    assert registry.register("s", record(A, B)) == 2
    found = registry("GET", "/schemas/ids/2").body
    assert (found["metadata"], found["ruleSet"]) == (metadata, rules)
    other = {"properties": {"owner": "orders"}}
    answer = registry("POST", "/subjects/s/versions", {"metadata": other}).body
    assert (answer["version"], answer["schema"], answer["metadata"]) == (3, text(record(A, B)), other)
    assert answer["ruleSet"] == rules


def test_compatibility_without_versions_and_with_the_reason_of_an_invalid_schema(registry):
    latest = "/compatibility/subjects/none/versions/latest"
    assert registry("POST", latest, {"schema": '"int"'}).body == {"is_compatible": True}
    answer = registry("POST", f"{latest}?verbose=true", {"schema": "none"}).body
    assert (answer["is_compatible"], len(answer["messages"])) == (False, 1)


def test_settings_without_a_level_come_with_the_level_that_applies(registry):
    assert registry("PUT", "/config/s", {"normalize": True}).body == {
        "compatibility": "BACKWARD",
        "normalize": True,
    }
    assert registry("GET", "/config/s").body == {"compatibilityLevel": "BACKWARD", "normalize": True}


def test_contract_that_is_empty_is_none_and_has_the_guid_of_the_stored_schema(registry):
    for number, empty in enumerate(({}, [], "", None)):
        body = {"schema": '"int"', "metadata": empty, "ruleSet": empty}
        guid = registry("POST", f"/subjects/s{number}/versions", body).body["guid"]
        assert registry("GET", f"/schemas/guids/{guid}").body["schema"] == '"int"'


@pytest.mark.parametrize(
    ("body", "guid"),
    [  # GUIDs of Confluent's registry 8.5
        ({"schema": '"int"'}, "ef524ea1-b91e-7317-3d93-8ade36c1db32"),
        ({"schema": '{"type":"string"}', "schemaType": "JSON"}, "2809284b-6e54-d0d3-4017-715ffe5636bd"),
    ],
)
def test_guid_is_that_of_confluents_registry(registry, body, guid):
    assert registry("POST", "/subjects/s/versions", body).body["guid"] == guid
    assert registry("GET", f"/schemas/guids/{guid.upper()}").body["schema"] == body["schema"]


@pytest.mark.parametrize(
    ("accept", "answered"),
    [
        (None, V1),
        ("*/*", V1),
        ("application/json", "application/json"),
        ("application/vnd.schemaregistry+json; q=0.5, application/json; q=0.9", "application/json"),
        ("text/html, application/*;q=0.1", V1),
    ],
)
def test_the_content_type_is_what_is_accepted_best(unchanged, accept, answered):
    headers = {"Accept": accept} if accept else {}
    assert unchanged("GET", "/subjects", **headers).headers["Content-Type"].startswith(answered)


def test_other_content_types_are_refused(registry):
    assert refused(registry("GET", "/subjects", Accept="text/html")) == (406, 406)
    sent = registry("POST", "/subjects/s/versions", {"schema": '"int"'}, Content_Type="text/plain")
    assert refused(sent) == (415, 415)
    assert registry(
        "POST", "/subjects/s/versions", {"schema": '"int"'}, Content_Type="application/json; charset=utf-8"
    ).body["id"]


def test_a_schema_too_large_for_the_topic_is_refused_and_the_next_is_taken(registry):
    assert registry.register("s", record(A, name="N" * 1_200_000)) == 42209
    assert registry.register("s", record(A)) == 1


def test_a_page_of_another_site_reaches_no_registry_on_this_machine(unchanged):
    """With DNS rebinding, the site's name has this machine's address, but the Host
    header still has the name.
    """
    refused = unchanged("GET", "/subjects", Host="evil.example")
    assert (refused.status, refused.body["error_code"]) == (421, 421)
    port = unchanged.url.rpartition(":")[2]
    for name in ("localhost", "127.0.0.1"):
        assert unchanged("GET", "/subjects", Host=f"{name}:{port}").status == 200


def test_a_request_that_is_no_http_has_no_traceback_in_the_log(unchanged, caplog):
    with caplog.at_level("INFO"), pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(f"{unchanged.url}/subjects?subjectPrefix={'a' * 9000}", timeout=60)
    assert not caplog.records
    assert unchanged("GET", "/subjects").status == 200
