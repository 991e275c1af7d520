"""The JSON of the console's pages."""

from __future__ import annotations

import json
import time

import pytest
from tests.console import RunningConsole
from tests.integration.conftest import use_share_groups

from barnabas.client import Consumer, Producer, Worker
from barnabas.console.server import ConsoleSettings
from barnabas.testing import BarnabasBroker


@pytest.fixture
def orders(make_topic, barnabas_broker):
    """A topic of two partitions with 30 records: JSON values, keys, a header, and one
    value that is not text.
    """
    topic = make_topic(partitions=2)
    began = int(time.time() * 1000) - 10_000
    with Producer(barnabas_broker.bootstrap_servers) as producer:
        for n in range(28):
            value = {"n": n, "order": {"total": n * 10}, "card": {"number": "4111"}}
            place = {"partition": n % 2, "timestamp_ms": began + n}
            producer.send(topic.name, value, key=f"user-{n % 4}", headers=[("source", b"shop")], **place)
        producer.send(topic.name, b"\xff\x00", partition=0)
        producer.send(topic.name, "evil \u202e text \x1b[31m", partition=1)
    return topic.name


def commit(broker, topic, group, offsets):
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "enable.auto.commit": False}
    )
    places = [confluent_kafka.TopicPartition(topic, p, offset) for p, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def test_overview_names_brokers_and_the_worst_lags(console, orders, barnabas_broker):
    commit(barnabas_broker, orders, f"g-{orders}", {0: 0, 1: 0})
    told = console.get("overview")
    (broker,) = told["brokers"]
    assert broker["controller"] and broker["address"] == barnabas_broker.bootstrap_servers
    assert told["offline"]["count"] == told["under_replicated"]["count"] == 0
    assert {"group": f"g-{orders}", "lag": 30} in told["lags"]


def test_topics_are_searched_sorted_and_counted_by_the_server(console, orders, make_topic):
    empty = make_topic().name
    (row,) = console.get("topics", search=orders)["topics"]
    assert (row["name"], row["partitions"], row["records"], row["offline"]) == (orders, 2, 30, 0)
    assert row["bytes"] > 0
    pages = console.get("topics")["pages"]
    rows = [
        (t["name"], t["records"])
        for page in range(1, pages + 1)
        for t in console.get("topics", sort="records", order="down", page=page)["topics"]
    ]
    assert [records for _, records in rows] == sorted((records for _, records in rows), reverse=True)
    assert {(orders, 30), (empty, 0)} <= {*rows}
    assert console.get("topics", page=pages + 1)["topics"] == []


def test_topic_tells_its_partitions_groups_and_settings(console, orders, barnabas_broker):
    commit(barnabas_broker, orders, f"g-{orders}", {0: 15, 1: 14})
    told = console.get("topic", name=orders)
    assert [(p["start"], p["end"], p["stable"]) for p in told["partitions"]] == [(0, 15, 15), (0, 15, 15)]
    assert {"group": f"g-{orders}", "lag": 1} in told["groups"]
    assert {"name": "retention.ms", "value": "604800000"}.items() <= next(
        s for s in told["settings"] if s["name"] == "retention.ms"
    ).items()


def test_what_is_not_there_is_told_in_one_line(console):
    answer = console.ask("topic", name="nowhere")
    assert answer.status == 409
    assert answer.body["error"].endswith("there is no topic nowhere")
    assert console.ask("nothing").status == 404
    assert console.ask("records").body == {"error": "topic is missing"}


def test_the_last_records_of_all_partitions_are_shown_by_time(console, orders):
    told = console.get("records", topic=orders, limit=6)
    assert len(told["records"]) == 6 and told["complete"]
    values = [json.loads(r["value"]["text"])["n"] for r in told["records"][:4]]
    assert values == [24, 25, 26, 27]
    assert told["records"][0]["key"]["text"] == "user-0"
    assert told["records"][0]["headers"][0][1]["text"] == "shop"


def test_bytes_that_are_no_text_are_hex_and_tricky_characters_are_visible(console, orders):
    rows = console.get("records", topic=orders, limit=2)["records"]
    assert {r["value"]["text"] for r in rows} == {"ff 00", "evil \\u202e text \\u001b[31m"}


def test_a_filter_finds_records_and_goes_on_where_it_ended(console, orders):
    wanted = {
        "topic": orders,
        "from": "start",
        "filter": "value.order.total >= 200 && header.source == 'shop'",
    }
    told = console.get("records", **wanted)
    assert [json.loads(r["value"]["text"])["n"] for r in told["records"]] == list(range(20, 28))
    assert told["complete"] and told["scanned"] == 30
    some = console.get("records", **wanted, limit=3)
    assert not some["complete"]
    rest = console.get("records", **wanted, next=some["next"])
    assert len(some["records"]) + len(rest["records"]) == 8
    assert console.ask("records", topic=orders, filter="value.n >").body["error"].startswith("'the end' at")


def test_records_from_an_offset_and_from_a_time_on(console, orders):
    told = console.get("records", **{"topic": orders, "from": "offset", "at": 12, "partitions": "1"})
    assert [r["offset"] for r in told["records"]] == [12, 13, 14]
    later = console.get(
        "records", **{"topic": orders, "from": "time", "at": int(time.time() * 1000) + 60_000}
    )
    assert later["records"] == [] and later["complete"]
    assert console.ask("records", **{"topic": orders, "from": "time", "at": "soon"}).status == 400


def test_hidden_values_leave_the_server_in_no_way(start_console, orders):
    console = start_console(privacy=_privacy(hide_values=True))
    text = json.dumps(console.get("records", topic=orders))
    assert "4111" not in text and "user-" not in text and "shop" not in text
    assert console.ask("records", topic=orders, filter="key == 'user-1'").status == 400


@pytest.mark.parametrize("how", ["auto", "text", "hex", "json"])
def test_masked_fields_are_hidden_in_every_format_and_from_filters(start_console, orders, how):
    console = start_console(privacy=_privacy(masks={orders: [["card", "number"]]}))
    rows = console.get("records", topic=orders, limit=20, format=how)["records"]
    assert all("4111" not in r["value"].get("text", "") for r in rows)
    assert sum("***" in r["value"].get("text", "") for r in rows) == 18
    assert [r["value"]["is"] for r in rows].count("hidden") == 2
    assert console.get("records", topic=orders, filter="value.card.number == '4111'")["records"] == []


def _privacy(**fields):
    from barnabas.console.view import Privacy

    return Privacy(**fields)


def test_group_tells_its_lag_in_records_and_in_seconds(console, orders, barnabas_broker):
    group = f"g-{orders}"
    commit(barnabas_broker, orders, group, {0: 3, 1: 99})
    told = console.get("group", name=group)
    behind, beyond = told["partitions"]
    assert (behind["committed"], behind["end"], behind["lag"]) == (3, 15, 12)
    assert 0 <= behind["seconds"] < 600
    assert beyond["out_of_range"] and not behind["out_of_range"]


def test_members_and_what_they_read(console, orders, barnabas_broker):
    group = f"m-{orders}"
    with Consumer(barnabas_broker.bootstrap_servers, orders, group=group) as consumer:
        next(iter(consumer))
        told = console.get("group", name=group)
        assert [sorted(m["partitions"]) for m in told["members"]] == [[f"{orders}-0", f"{orders}-1"]]
        assert told["state"].lower() == "stable"
        rows = console.get("groups", search=group)["groups"]
        assert [row["name"] for row in rows] == [group]


def test_brokers_tell_leaders_directories_and_settings(console, orders):
    told = console.get("brokers", search=orders)
    assert {"partition": f"{orders}-0", "leader": 1, "replicas": [1], "in_sync": [1]} in told["matrix"]
    (directory,) = told["brokers"][0]["log_dirs"]["directories"]
    assert directory["replicas"] > 0 and directory["error"] is None
    settings = {s["name"]: s for s in console.get("broker", id=1)["settings"]}
    assert settings["node.id"]["value"] == "1"


def test_transactions_are_listed(console, orders, barnabas_broker):
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": barnabas_broker.bootstrap_servers, "transactional.id": f"t-{orders}"}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(orders, b"x", partition=0)
    producer.flush(60)
    states = {t["id"]: t["state"] for t in console.get("transactions")["transactions"]}
    assert states[f"t-{orders}"] == "Ongoing"
    open_ones = [r["open"] for r in console.get("records", topic=orders, limit=1)["records"]]
    assert open_ones == [True]
    producer.abort_transaction(60)
    rows = console.get("records", topic=orders, limit=2, markers="yes")["records"]
    assert [(r["aborted"], r["marker"]) for r in rows] == [(True, None), (False, "abort")]


def test_the_live_picture_follows_records_and_commits(console, orders, barnabas_broker):
    looks = console.looks(orders)
    first = next(looks)
    assert [len(lane["cells"]) for lane in first["lanes"]] == [15, 15]
    assert [lane["end"] for lane in first["lanes"]] == [15, 15]
    assert first["lanes"][0]["cells"][0][1] == first["lanes"][0]["cells"][2][1]  # one colour a key
    with Producer(barnabas_broker.bootstrap_servers) as producer:
        producer.send(orders, "new", partition=1)
        for _ in range(100):
            producer.send(orders, "many", partition=0)
    seen = {0: 15, 1: 15}
    commit(barnabas_broker, orders, f"g-{orders}", {1: 16})
    for look in looks:
        for lane in look["lanes"]:
            for cell in lane.get("cells", []):
                assert cell[0] == seen[lane["partition"]]
                seen[lane["partition"]] += 1
            if "block" in lane:
                assert lane["block"][0] == seen[lane["partition"]]
                seen[lane["partition"]] = lane["block"][1]
        if seen == {0: 115, 1: 16} and look["groups"].get(f"g-{orders}") == {"1": 16}:
            break
    # So many at a time are only counted in the next look; a single one is shown again.
    with Producer(barnabas_broker.bootstrap_servers) as producer:
        producer.send(orders, "one more", partition=0)
    cells = [cell for look in until(looks, 0, 116) for cell in look["lanes"][0].get("cells", [])]
    assert [offset for offset, *_ in cells] == [115]
    looks.close()


@pytest.fixture
def queue(make_topic, barnabas_broker, connect):
    """Create a topic of six records and a share group. The group has finished two
    records and released four.
    """
    use_share_groups(connect(barnabas_broker))
    name = make_topic(partitions=1).name
    barnabas_broker.admin().alter_configs("group", name, set={"share.auto.offset.reset": "earliest"})
    with Producer(barnabas_broker.bootstrap_servers) as producer:
        for number in range(6):
            producer.send(name, str(number))
    with Worker(barnabas_broker.bootstrap_servers, name, group=name) as worker:
        worker.take(1, 60)[0].reject()
        worker.take(1, 60)
    return name


def test_a_share_group_tells_who_has_locked_which_records(console, queue, barnabas_broker):
    with Worker(barnabas_broker.bootstrap_servers, queue, group=queue) as worker:
        worker.take(1, 60)
        told = console.get("group", name=queue)
        (partition,) = told["partitions"]
        (member,) = told["members"]
        (records,) = told["records"]
        assert (told["type"], told["state"], told["is_told"]) == ("share", "Stable", True)
        assert (partition["start"], partition["locked"], partition["waiting"]) == (2, 4, 0)
        assert (records["first"], records["last"], records["deliveries"]) == (2, 5, 2)
        assert (records["state"], records["member"], member["locked"]) == ("acquired", member["id"], 4)
        assert 0 < records["lock_ms"] <= 30_000
        (row,) = console.get("groups", search=queue)["groups"]
        assert (row["type"], row["topics"]) == ("share", [queue])
    assert console.get("group", name=queue)["members"] == []


def test_a_share_group_is_many_hands_in_the_live_picture(console, queue, barnabas_broker):
    with Worker(barnabas_broker.bootstrap_servers, queue, group=queue) as worker:
        worker.take(1, 60)
        looks = console.looks(queue)
        lanes = next(each for look in looks if (each := look["queues"].get(queue)))
        looks.close()
    assert lanes["0"] == {
        "start": 2,
        "locked": 4,
        "waiting": 0,
        "acknowledged": 0,
        "archived": 0,
        "batches": [[2, 5, "acquired", 2, 1]],
    }


def test_dead_letters_of_a_share_group_are_counted_and_go_back(console, make_topic, barnabas_broker, connect):
    use_share_groups(connect(barnabas_broker), level=2)
    name = make_topic(partitions=1).name
    letters = f"dlq.{name}"
    barnabas_broker.create_topic(letters, configs={"errors.deadletterqueue.group.enable": "true"})
    settings = {"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": letters}
    barnabas_broker.admin().alter_configs("group", name, set=settings)
    barnabas_broker.produce(name, "poison")
    with Worker(barnabas_broker.bootstrap_servers, name, group=name) as worker:
        worker.take(1, 60)[0].reject()
    barnabas_broker.consume(letters, 1)
    assert console.get("group", name=name)["dead_letters"] == {
        "topic": letters,
        "records": 1,
        "problem": None,
    }
    asked = {"do": "redrive", "topic": letters, "partition": 0, "offset": 0, "execute": True}
    assert console.change(**asked).body["result"] == {"topic": name, "partition": 0, "offset": 1}
    assert [record.value for record in barnabas_broker.consume(name, 2)] == [b"poison", b"poison"]


def until(looks, partition, end):
    """Yield the events up to the one in which the partition ends at `end`."""
    for look in looks:
        yield look
        if look["lanes"][partition]["end"] == end:
            return


def test_a_console_in_front_of_nothing_says_so(start_console):
    with BarnabasBroker() as gone:
        address = gone.bootstrap_servers
    answer = start_console(address).ask("overview")
    assert answer.status == 502
    assert f"no broker answers at {address}" in answer.body["error"]


def test_a_console_that_ends_while_somebody_watches_says_nothing(orders, barnabas_broker, caplog):
    with RunningConsole(ConsoleSettings(barnabas_broker.bootstrap_servers, "127.0.0.1:0")) as console:
        looks = console.looks(orders)
        next(looks)
    looks.close()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_group_that_is_not_there_is_told_in_one_line(console):
    answer = console.ask("group", name="nobody")
    assert answer.status == 409
    assert answer.body == {"error": "there is no group nobody", "code": "GROUP_ID_NOT_FOUND"}


def test_errors_are_sentences_and_codes_stand_beside_them(console):
    answer = console.ask("topic", name="nowhere").body
    assert answer == {"error": "there is no topic nowhere", "code": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert "SECURITY_DISABLED" not in console.get("access")["rules"]["problem"]


@pytest.fixture
def large(make_topic, barnabas_broker):
    """Create a topic with a record of 64 KiB of JSON, and one that is not text."""
    topic = make_topic().name
    with Producer(barnabas_broker.bootstrap_servers) as producer:
        producer.send(topic, {"card": {"number": "4111"}, "text": "x" * (64 << 10)}, key="k")
        producer.send(topic, b"\xff\x00", key="bytes")
    return topic


def test_a_page_of_records_has_the_beginning_of_a_large_value_and_a_page_of_one_has_it_all(console, large):
    row = console.get("records", topic=large)["records"][0]
    assert row["value"]["cut"] and len(row["value"]["text"]) <= 2048
    whole = console.get("record", topic=large, partition=0, offset=0)
    assert json.loads(whole["value"]["text"])["text"] == "x" * (64 << 10) and "cut" not in whole["value"]
    assert console.ask("record", topic=large, partition=0, offset=7).status == 400


def test_a_value_is_downloaded_byte_by_byte(console, large):
    answer = console.open(
        f"{console.url}api/download/value?topic={large}&partition=0&offset=0", Cookie=console.cookie
    )
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{large}-0-0.value"'
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.body["text"] == "x" * (64 << 10)
    assert console.ask("download/value", topic=large, partition=0, offset=0, part="headers").status == 400


def test_records_are_downloaded_as_lines_that_produce_reads(console, large):
    answer = console.ask("download/records", topic=large, **{"from": "start"})
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert [(line["key"], line["offset"]) for line in lines] == [("k", 0), ("bytes", 1)]
    assert lines[1]["value"] == {"base64": "/wA="} and json.loads(lines[0]["value"])["card"]


def test_hidden_and_masked_values_cannot_be_downloaded(start_console, large):
    hiding = start_console(privacy=_privacy(hide_values=True))
    masking = start_console(privacy=_privacy(masks={large: [["card", "number"]]}))
    for console in (hiding, masking):
        assert console.ask("download/value", topic=large, partition=0, offset=0).status == 400
        lines = console.ask("download/records", topic=large, **{"from": "start"}).body
        assert "4111" not in lines and len(lines.splitlines()) == 2
        assert "4111" not in json.dumps(console.get("record", topic=large, partition=0, offset=0))


def test_columns_of_ones_own_come_from_paths_in_records(start_console, console, orders):
    asked = {"topic": orders, "from": "start", "limit": 2, "columns": "value.order.total, header.source"}
    rows = console.get("records", **asked)["records"]
    assert [row["columns"] for row in rows] == [["0", "shop"], ["20", "shop"]]
    assert console.ask("records", topic=orders, columns="value.a == 1").status == 400
    masking = start_console(privacy=_privacy(masks={orders: [["card", "number"]]}))
    (row,) = masking.get("records", **{**asked, "limit": 1, "columns": "value.card.number"})["records"]
    assert row["columns"] == ["***"]
    hiding = start_console(privacy=_privacy(hide_values=True))
    assert hiding.ask("records", **asked).status == 400
