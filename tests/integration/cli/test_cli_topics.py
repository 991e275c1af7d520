"""`barnabas topics` and `barnabas configs` against a broker."""

import pytest

from barnabas.base.types import TopicPartition


def test_a_topic_is_created_listed_described_altered_and_deleted(barnabas):
    assert barnabas("topics", "create", "life", "--partitions", 3).out == "created topic life\n"
    [listed] = [topic for topic in barnabas("topics", "list", "--json").json() if topic["topic"] == "life"]
    assert (listed["partitions"], listed["replication_factor"]) == (3, 1)
    barnabas("topics", "alter", "life", "--partitions", 5, "--config", "retention.ms=1000")
    [described] = barnabas("topics", "describe", "life", "--json").json()
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2, 3, 4]
    assert described["configs"] == {"retention.ms": "1000"}
    barnabas("topics", "alter", "life", "--delete-config", "retention.ms")
    assert barnabas("topics", "describe", "life", "--json").json()[0]["configs"] == {}
    assert barnabas("topics", "delete", "life").out == "deleted topic life\n"
    assert "life" not in barnabas("topics", "list").out


def test_describe_prints_a_table_of_partitions(barnabas):
    barnabas("topics", "create", "two-parts", "--partitions", 2, "-c", "retention.ms=1000")
    head, topic_id, columns, *partitions = barnabas("topics", "describe", "two-parts").lines
    assert head == "topic two-parts: 2 partitions, replication factor 1, retention.ms=1000"
    assert topic_id.startswith("id ")
    assert columns == "PARTITION  LEADER  REPLICAS  ISR  EARLIEST  LATEST  SIZE"
    assert [line.split() for line in partitions] == [["0", "1", "1", "1", "0", "0", "0"], ["1", *"111000"]]
    assert {len(line) for line in partitions} == {len(columns)}  # numbers stand to the right


def test_described_topics_are_parted_by_an_empty_line(barnabas):
    for name in ("part-a", "part-b"):
        barnabas("topics", "create", name)
    lines = barnabas("topics", "describe", "part-a", "part-b").lines
    assert lines[4] == ""
    assert lines[5].startswith("topic part-b: 1 partition,")


def test_describe_shows_offsets_and_size(barnabas, barnabas_broker, barnabas_topic):
    barnabas("produce", barnabas_topic, stdin="a\nb\nc\n")
    barnabas_broker.admin().delete_records({TopicPartition(barnabas_topic, 0): 1})
    [partition] = barnabas("topics", "describe", barnabas_topic, "--json").json()[0]["partitions"]
    assert (partition["earliest_offset"], partition["latest_offset"]) == (1, 3)
    assert partition["size_bytes"] > 61
    line = barnabas("topics", "describe", barnabas_topic).lines[-1]
    assert line.split()[-3:] == ["1", "3", str(partition["size_bytes"])]


def test_healthy_partitions_are_not_under_replicated(barnabas, barnabas_topic):
    assert barnabas("topics", "describe", "--under-replicated").out == ""
    assert barnabas("topics", "describe", "--under-replicated", "--json").json() == []


def test_a_topic_that_is_there_is_an_error_unless_that_is_fine(barnabas, barnabas_topic):
    assert "TOPIC_ALREADY_EXISTS" in barnabas("topics", "create", barnabas_topic, code=1).err
    assert "exists already" in barnabas("topics", "create", barnabas_topic, "--if-not-exists").out


def test_a_topic_that_is_not_there_is_an_error_unless_that_is_fine(barnabas):
    assert "there is no topic absent" in barnabas("topics", "describe", "absent", code=1).err
    assert "no topic absent" in barnabas("topics", "delete", "absent", code=1).err
    assert "there is no topic absent" in barnabas("topics", "delete", "absent", "--if-exists").out


def test_validation_creates_nothing(barnabas):
    barnabas("topics", "create", "only-asked", "--validate-only")
    assert "only-asked" not in barnabas("topics", "list").out


def test_replicas_can_be_placed_by_hand(barnabas):
    barnabas("topics", "create", "placed", "--replica-assignment", "1,1,1")
    assert len(barnabas("topics", "describe", "placed", "--json").json()[0]["partitions"]) == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["create", "a b"], "INVALID_TOPIC_EXCEPTION"),
        (["create", "t", "-c", "no.such=1"], "no.such"),
        (["create", "t", "-c", "retention.ms=soon"], "retention.ms"),
        (["create", "t", "--replication-factor", "9"], "INVALID_REPLICATION_FACTOR"),
        (["create", "t", "--replica-assignment", "7"], "INVALID_REPLICA_ASSIGNMENT"),
    ],
)
def test_what_the_broker_refuses_is_one_line_and_exit_code_1(barnabas, arguments, words):
    err = barnabas("topics", *arguments, code=1).err
    assert words in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("whose", [["--broker", "1"], ["--group", "billing"]])
def test_what_a_broker_refuses_of_settings_names_whose_they_are(barnabas, whose):
    err = barnabas("configs", "alter", *whose, "--set", "log.dirs=/elsewhere", code=1).err
    assert f": {whose[0][2:]} {whose[1]}: " in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["topics", "create", "t", "-c", "retention.ms"], "write NAME=VALUE"),
        (["topics", "create", "t", "--partitions", "0"], "--partitions"),
        (["topics", "create", "t", "--replica-assignment", "x"], "write broker ids"),
        (["topics", "create", "t", "--replica-assignment", "1", "--partitions", "1"], "leave out"),
        (["topics", "alter", "t"], "nothing to alter"),
        (["topics", "delete"], "Missing argument"),
        (["configs", "describe"], "--client-metrics NAME, --broker ID or --broker-defaults"),
        (["configs", "alter", "--topic", "t"], "nothing to alter"),
        (["configs", "describe", "--topic", "t", "--broker-defaults"], "name one"),
        (["configs", "describe", "--broker", ""], "is not a valid integer"),
        (["configs", "describe", "--broker", "-1"], "--broker"),
        (["configs", "describe", "--topic", ""], "a name must not be empty"),
        (["configs", "alter", "--topic", "t", "--set", "a=1", "--delete", "a"], "changes a twice"),
        (["configs", "alter", "--topic", "t", "--set", "a=1", "--append", "a=2"], "changes a twice"),
        (["topics", "alter", "t", "-c", "a=1", "--delete-config", "a"], "changes a twice"),
        (["topics", "create", "t", "-c", "a=1", "-c", "a=2"], "--config sets a twice"),
        (["topics", "create", ""], "a name must not be empty"),
        (["topics", "create", "t", "--partitions", str(2**31)], "--partitions"),
        (["topics", "create", "t", "--replication-factor", str(2**15)], "--replication-factor"),
        (["topics", "create", "t", "--replica-assignment", "-1"], "write broker ids"),
        (["topics", "create", "t", "--replica-assignment", str(2**31)], "write broker ids"),
        (["topics", "delete", "t", "t"], "names t twice"),
        (["topics", "describe", "t", "t"], "names t twice"),
        (["ship", "a.log", "a.log", "--topic", "t"], "names a.log twice"),
        (["registry", "--listen", "nonsense"], "write HOST:PORT"),
        (["nonsense"], "No such command"),
    ],
)
def test_wrong_usage_is_said_with_exit_code_2(barnabas, arguments, words):
    assert words in barnabas(*arguments, code=2).err


def test_nobody_there_is_said_with_the_cure(barnabas):
    err = barnabas("topics", "list", "--bootstrap-server", "127.0.0.1:1", code=1).err
    assert err == (
        "Error: no broker answers at 127.0.0.1:1 (connection refused, nothing listens there): "
        "start one with `barnabas start`, or name another with --bootstrap-server HOST:PORT\n"
    )


def test_an_address_that_is_none_is_said(barnabas):
    assert "is not HOST:PORT" in barnabas("topics", "list", "-b", "localhost", code=2).err


def test_a_broker_that_the_cluster_does_not_have_is_said_with_those_that_it_has(barnabas):
    err = barnabas("configs", "describe", "--broker", 7, code=1).err
    assert err == "Error: the cluster has no broker 7; its brokers are 1\n"
    assert (
        "the cluster has no broker 7"
        in barnabas("configs", "alter", "--broker", 7, "--set", "a=b", code=1).err
    )


def test_settings_of_a_topic_are_shown_with_their_source(barnabas, barnabas_topic):
    barnabas("configs", "alter", "--topic", barnabas_topic, "--set", "retention.ms=1000")
    values = {
        value["name"]: value
        for value in barnabas("configs", "describe", "--topic", barnabas_topic, "--json").json()
    }
    assert (values["retention.ms"]["value"], values["retention.ms"]["source"]) == ("1000", "topic")
    assert values["segment.ms"]["source"] == "default"
    heading, *changed = barnabas("configs", "describe", "--topic", barnabas_topic, "--changed").lines
    assert heading.split() == ["NAME", "VALUE", "SOURCE"]
    assert ["retention.ms", "1000", "topic"] in [line.split() for line in changed]
    assert not any(line.endswith(" default") for line in changed)


def test_list_settings_are_added_to_and_taken_from(barnabas, barnabas_topic):
    def policy():
        values = barnabas("configs", "describe", "--topic", barnabas_topic, "--json").json()
        return next(value["value"] for value in values if value["name"] == "cleanup.policy")

    barnabas("configs", "alter", "--topic", barnabas_topic, "--append", "cleanup.policy=compact")
    assert policy() == "delete,compact"
    barnabas("configs", "alter", "--topic", barnabas_topic, "--subtract", "cleanup.policy=delete")
    assert policy() == "compact"
    barnabas("configs", "alter", "--topic", barnabas_topic, "--delete", "cleanup.policy")
    assert policy() == "delete"


def test_a_brokers_settings_change_while_it_runs(barnabas):
    barnabas("configs", "alter", "--broker", 1, "--set", "log.retention.ms=123456")
    changed = barnabas("configs", "describe", "--broker", 1, "--changed").out
    assert "dynamic broker" in changed
    assert "123456" in changed
    barnabas("configs", "alter", "--broker", 1, "--delete", "log.retention.ms")


def test_every_brokers_default_is_shown_and_changed(barnabas):
    def shown():
        return [line.split(maxsplit=2) for line in barnabas("configs", "describe", "--broker-defaults").lines]

    minimum = ["min.insync.replicas", "1", "dynamic default broker"]  # the cluster always has one
    assert shown()[1:] == [minimum]
    barnabas("configs", "alter", "--broker-defaults", "--set", "log.retention.ms=123456")
    assert shown()[1:] == [["log.retention.ms", "123456", "dynamic default broker"], minimum]
    values = barnabas("configs", "describe", "--broker", 1, "--changed", "--json").json()
    assert [v["source"] for v in values if v["name"] == "log.retention.ms"] == ["dynamic default broker"]
    err = barnabas("configs", "alter", "--broker-defaults", "--set", "no.such=1", code=1).err
    assert "no.such is not a Barnabas setting" in err
    barnabas("configs", "alter", "--broker-defaults", "--delete", "log.retention.ms")
    assert shown()[1:] == [minimum]
    assert (
        "cannot be removed"
        in barnabas("configs", "alter", "--broker-defaults", "--delete", "min.insync.replicas", code=1).err
    )


def test_a_groups_settings_are_shown_and_changed(barnabas):
    def session_timeout():
        values = barnabas("configs", "describe", "--group", "g", "--json").json()
        [value] = [value for value in values if value["name"] == "consumer.session.timeout.ms"]
        return value["value"], value["source"]

    before = session_timeout()
    outcome = barnabas("configs", "alter", "--group", "g", "--set", "consumer.session.timeout.ms=46000")
    assert outcome.out == "altered group g\n"
    assert session_timeout() == ("46000", "group")
    barnabas("configs", "alter", "--group", "g", "--delete", "consumer.session.timeout.ms")
    assert session_timeout() == before != ("46000", "group")


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "alter", "{topic}", "--delete-config", "retention.mss"],
        ["configs", "alter", "--topic", "{topic}", "--delete", "retention.mss"],
    ],
)
def test_a_setting_that_does_not_exist_cannot_be_put_back(barnabas, barnabas_topic, arguments):
    err = barnabas(*(word.format(topic=barnabas_topic) for word in arguments), code=1).err
    assert err == "Error: a topic has no setting retention.mss: did you mean retention.ms?\n"


@pytest.mark.parametrize("whose", [["--broker", 1], ["--broker-defaults"], ["--group", "g"]])
def test_a_setting_of_others_that_does_not_exist_cannot_be_put_back(barnabas, whose):
    assert "has no setting nosuch" in barnabas("configs", "alter", *whose, "--delete", "nosuch", code=1).err


def test_a_setting_that_needs_a_restart_is_refused(barnabas):
    assert "node.id" in barnabas("configs", "alter", "--broker", 1, "--set", "node.id=7", code=1).err
