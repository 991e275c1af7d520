"""`barnabas groups` against a broker."""

import time

import pytest


@pytest.fixture
def group(barnabas_broker, barnabas_topic):
    """Create a group without members that has read five of ten records."""
    barnabas_broker.produce(barnabas_topic, *(str(number) for number in range(10)))
    name = f"group-of-{barnabas_topic}"
    with barnabas_broker.consumer(barnabas_topic, group=name) as consumer:
        consumer.take(5)
    return name


def test_a_group_of_the_consumer_protocol_shows_epochs_and_targets(barnabas, barnabas_broker, barnabas_topic):
    from confluent_kafka import Consumer

    name = f"new-group-of-{barnabas_topic}"
    consumer = Consumer(
        {
            "bootstrap.servers": barnabas_broker.bootstrap_servers,
            "group.id": name,
            "group.protocol": "consumer",
            "client.id": "the-reader",
        }
    )
    consumer.subscribe([barnabas_topic])
    deadline = time.monotonic() + 60
    while not consumer.assignment():
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    assert name in barnabas("groups", "list", "--type", "consumer").out
    described = barnabas("groups", "describe", name, "--json").json()
    assert (described["type"], described["state"], described["assignor"]) == ("consumer", "Stable", "uniform")
    assert described["epoch"] == described["target_epoch"] == 1
    [member] = described["members"]
    assert (member["client"], member["protocol"], member["epoch"]) == ("the-reader", "consumer", 1)
    assert member["target"] == member["partitions"] == [{"topic": barnabas_topic, "partition": 0}]
    shown = barnabas("groups", "describe", name, "--members").out
    assert "epoch 1, target of epoch 1" in shown
    assert shown.count(f"{barnabas_topic}:0") == 2
    consumer.close()


def new_offsets(outcome):
    return [entry["new"] for entry in outcome.json()["offsets"]]


def test_a_group_is_listed_with_its_state(barnabas, group):
    listed = {"group": group, "type": "classic", "state": "Empty"}
    assert listed in barnabas("groups", "list", "--json").json()
    assert group not in barnabas("groups", "list", "--type", "consumer").out
    assert group in barnabas("groups", "list", "--state", "empty").out
    assert group not in barnabas("groups", "list", "--state", "Stable").out


def test_lag_is_end_minus_current(barnabas, barnabas_topic, group):
    described = barnabas("groups", "describe", group, "--json").json()
    assert described["lag"] == 5
    [partition] = described["partitions"]
    assert (partition["topic"], partition["current"], partition["end"], partition["lag"]) == (
        barnabas_topic,
        5,
        10,
        5,
    )
    assert f"group {group} is Empty, 0 members, lag 5" in barnabas("groups", "describe", group).out


def test_members_are_shown_with_what_they_read(barnabas, barnabas_broker, barnabas_topic, group):
    with barnabas_broker.consumer(barnabas_topic, group=group, client_id="the-reader") as consumer:
        consumer.take(1)
        described = barnabas("groups", "describe", group, "--json").json()
        assert described["state"] == "Stable"
        [member] = described["members"]
        assert member["client"] == "the-reader"
        assert member["partitions"] == [{"topic": barnabas_topic, "partition": 0}]
        assert "the-reader" in barnabas("groups", "describe", group, "--members").out
        assert "NON_EMPTY_GROUP" in barnabas("groups", "delete", group, code=1).err


@pytest.mark.parametrize(
    ("target", "new"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-offset", "3"], 3),
        (["--to-offset", "99"], 10),
        (["--shift-by", "-2"], 3),
        (["--shift-by", "-200"], 0),
        (["--by-duration", "1h"], 0),
        (["--to-datetime", "2999-01-01T00:00"], 10),
    ],
)
def test_a_reset_is_shown_and_changes_nothing_until_it_is_executed(
    barnabas, barnabas_topic, group, target, new
):
    command = ["groups", "reset-offsets", group, "--topic", barnabas_topic, *target]
    assert new_offsets(barnabas(*command, "--json")) == [new]
    assert barnabas("groups", "describe", group, "--json").json()["partitions"][0]["current"] == 5
    barnabas(*command, "--execute")
    assert barnabas("groups", "describe", group, "--json").json()["partitions"][0]["current"] == new


@pytest.mark.parametrize("target", [["--to-offset", "99"], ["--shift-by", "94"]])
def test_an_offset_that_a_partition_does_not_have_is_replaced_and_said(
    barnabas, barnabas_topic, group, target
):
    outcome = barnabas("groups", "reset-offsets", group, "--all-topics", *target, "--json")
    assert new_offsets(outcome) == [10]
    assert f"{barnabas_topic}-0 has offsets 0 to 10: 10 instead of 99\n" in outcome.err


def test_a_partition_that_is_not_there_is_not_reset(barnabas, barnabas_topic, group):
    command = ["groups", "reset-offsets", group, "--topic", f"{barnabas_topic}:0,7", "--to-earliest"]
    assert "there is no partition 7, the last one is 0" in barnabas(*command, code=2).err


def test_groups_that_were_not_tried_are_named(barnabas, group):
    err = barnabas("groups", "delete", "absent-group", group, code=1).err
    assert "absent-group" in err
    assert f"(not tried: {group})" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["list", "--state", "Foo"], "'Foo' is not one of Stable, Empty, "),
        (["list", "--type", "queue"], "'queue' is not one of"),
        (["describe", ""], "a name must not be empty"),
        (["delete", "g", "g"], "names g twice"),
        (["reset-offsets", "g", "--all-topics", "--to-offset", "-1"], "--to-offset"),
        (["reset-offsets", "g", "--all-topics", "--to-offset", str(2**63)], "--to-offset"),
        (["reset-offsets", "g", "--all-topics", "--shift-by", str(2**63)], "--shift-by"),
        (["reset-offsets", "g", "--topic", "", "--to-latest"], "a name must not be empty"),
    ],
)
def test_what_no_group_has_is_wrong_usage(barnabas, arguments, words):
    assert words in barnabas("groups", *arguments, code=2).err


def test_a_dry_run_says_that_it_is_one(barnabas, group):
    outcome = barnabas("groups", "reset-offsets", group, "--all-topics", "--to-earliest", "--dry-run")
    assert "add --execute" in outcome.err
    assert outcome.lines[0].split() == ["TOPIC", "PARTITION", "CURRENT", "NEW"]


def test_some_partitions_can_be_reset(barnabas):
    topic = f"parts-{time.time_ns()}"
    barnabas("topics", "create", topic, "--partitions", 3)
    command = ["groups", "reset-offsets", f"g-{topic}", "--topic", f"{topic}:0,2", "--to-earliest", "--json"]
    assert [entry["partition"] for entry in barnabas(*command).json()["offsets"]] == [0, 2]


def test_a_group_is_deleted_and_then_not_there(barnabas, group):
    assert barnabas("groups", "delete", group).out == f"deleted group {group}\n"
    assert f"there is no group {group}" in barnabas("groups", "describe", group, code=1).err
    assert "GROUP_ID_NOT_FOUND" in barnabas("groups", "delete", group, code=1).err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["g", "--all-topics"], "choose one new position"),
        (["g", "--all-topics", "--to-earliest", "--to-latest"], "choose one new position"),
        (["g", "--to-earliest"], "name the partitions"),
        (["g", "--all-topics", "--to-earliest", "--dry-run", "--execute"], "choose --dry-run or --execute"),
        (["g", "--topic", "t:x", "--to-earliest"], "write NAME or NAME:0,1,2"),
        (["g", "--all-topics", "--by-duration", "soon"], "for example 90s"),
        (["never-seen", "--all-topics", "--to-earliest"], "name its topics"),
    ],
)
def test_a_reset_that_says_too_little_or_too_much_is_wrong_usage(barnabas, arguments, words):
    assert words in barnabas("groups", "reset-offsets", *arguments, code=2).err


def test_shifting_needs_an_offset_to_shift(barnabas, barnabas_topic):
    arguments = ["never-seen", "--topic", barnabas_topic, "--shift-by", 1]
    assert "has none" in barnabas("groups", "reset-offsets", *arguments, code=2).err


def test_partitions_that_the_group_has_not_read_yet_are_shown(
    barnabas, barnabas_broker, barnabas_topic, group
):
    barnabas("topics", "alter", barnabas_topic, "--partitions", 3)
    described = barnabas("groups", "describe", group, "--json").json()
    assert [
        (each["partition"], each["current"], each["end"], each["lag"]) for each in described["partitions"]
    ] == [
        (0, 5, 10, 5),
        (1, None, 0, None),
        (2, None, 0, None),
    ]
    assert described["lag"] == 5
    assert [line.split()[1:5] for line in barnabas("groups", "describe", group).lines[2:]] == [
        ["0", "5", "10", "5"],
        ["1", "-", "0", "-"],
        ["2", "-", "0", "-"],
    ]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_of_a_live_group_are_not_reset_and_the_dry_run_says_so(
    barnabas, barnabas_broker, barnabas_topic, group, protocol
):
    command = ["groups", "reset-offsets", group, "--topic", barnabas_topic, "--to-earliest"]
    settings = {"client_id": "the-reader", "group.protocol": protocol}
    with barnabas_broker.consumer(barnabas_topic, group=group, **settings) as consumer:
        consumer.take(1)
        for options, code in (([], 0), (["--json"], 0), (["--execute"], 1)):
            err = barnabas(*command, *options, code=code).err
            assert f"group {group} is Stable and has 1 member (the-reader at " in err
            assert "stop its consumers, and wait until it is Empty" in err
            assert "UNKNOWN_MEMBER_ID" not in err
            assert "add --execute" not in err
    assert barnabas(*command).err == "nothing has been changed: add --execute to do it\n"


def test_a_consumer_that_joins_between_the_check_and_the_reset_is_named(
    barnabas, barnabas_broker, barnabas_topic, group, monkeypatch
):
    from barnabas.cli import groups

    refusals = iter([None])
    real = groups._refusal
    monkeypatch.setattr(groups, "_refusal", lambda description: next(refusals, real(description)))
    with barnabas_broker.consumer(barnabas_topic, group=group) as consumer:
        consumer.take(1)
        err = barnabas(
            "groups", "reset-offsets", group, "--all-topics", "--to-earliest", "--execute", code=1
        ).err
    assert "NON_EMPTY_GROUP" in err and "has 1 member" in err
