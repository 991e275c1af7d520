"""Log lines of real systems, and their parsed fields."""

import json
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.log_lines import has_header, parse_line
from barnabas.client.timestamps import iso_timestamp, parse_timestamp

LINES = {
    "apache 2.2 error": (
        "[Sun Dec 04 04:47:44 2005] [error] mod_jk child workerEnv in error state 6",
        {
            "level": "ERROR",
            "timestamp": "2005-12-04T04:47:44",
            "message": "mod_jk child workerEnv in error state 6",
        },
    ),
    "apache 2.4 error": (
        "[Wed Oct 11 14:32:52.123456 2000] [core:error] [pid 35708:tid 4328] [client 10.1.2.3:80] "
        "No such file: /x",
        {
            "level": "ERROR",
            "timestamp": "2000-10-11T14:32:52.123456",
            "logger": "core",
            "pid": 35708,
            "client": "10.1.2.3:80",
            "message": "No such file: /x",
        },
    ),
    "hdfs": (
        "081109 203615 148 INFO dfs.DataNode$PacketResponder: PacketResponder 1 for block blk_38 terminating",
        {
            "level": "INFO",
            "timestamp": "2008-11-09T20:36:15",
            "pid": 148,
            "logger": "dfs.DataNode$PacketResponder",
            "message": "PacketResponder 1 for block blk_38 terminating",
        },
    ),
    "openstack": (
        "nova-api.log.1.2017-05-16_13:53:08 2017-05-16 00:00:00.008 25746 INFO nova.wsgi.server "
        "[req-38 - - -] "
        '10.11.10.1 "GET /v2" status: 200',
        {
            "level": "INFO",
            "timestamp": "2017-05-16T00:00:00.008",
            "program": "nova-api.log.1.2017-05-16_13:53:08",
            "pid": 25746,
            "logger": "nova.wsgi.server",
            "thread": "req-38 - - -",
            "message": '10.11.10.1 "GET /v2" status: 200',
        },
    ),
    "zookeeper": (
        "2015-07-29 17:41:44,747 - INFO  [QuorumPeer[myid=1]/0:0:0:0:0:0:0:0:2181:Election@774] - "
        "Time out: 3200",
        {
            "level": "INFO",
            "timestamp": "2015-07-29T17:41:44.747",
            "thread": "QuorumPeer[myid=1]/0:0:0:0:0:0:0:0:2181:Election@774",
            "message": "Time out: 3200",
        },
    ),
    "python logging": (
        "2024-01-01 12:00:00,123 - my.app - WARNING - disk nearly full",
        {
            "level": "WARN",
            "timestamp": "2024-01-01T12:00:00.123",
            "logger": "my.app",
            "message": "disk nearly full",
        },
    ),
    "python basicConfig": (
        "ERROR:root:boom: at last",
        {"level": "ERROR", "logger": "root", "message": "boom: at last", "timestamp": None},
    ),
    "uvicorn": (
        "INFO:     Started server process [123]",
        {"level": "INFO", "message": "Started server process [123]"},
    ),
    "kafka": (
        "[2024-01-01 12:00:00,123] WARN [Broker id=1] Stopped (kafka.server.Broker)",
        {"level": "WARN", "thread": "Broker id=1", "message": "Stopped (kafka.server.Broker)"},
    ),
    "spark": (
        "24/01/01 12:00:00 INFO SparkContext: Running Spark version 4.3.0",
        {
            "timestamp": "2024-01-01T12:00:00",
            "logger": "SparkContext",
            "message": "Running Spark version 4.3.0",
        },
    ),
    "spring boot": (
        "2024-01-01 12:00:00.000  INFO 12345 --- [           main] com.example.Main   : Started Main",
        {"level": "INFO", "pid": 12345, "logger": "com.example.Main", "message": "Started Main"},
    ),
    "tomcat": (
        "01-Jan-2024 12:00:00.123 SEVERE [main] org.apache.Catalina.start Server startup in [1234] ms",
        {"level": "ERROR", "thread": "main", "logger": "org.apache.Catalina.start"},
    ),
    "monolog": (
        '[2024-01-01 12:00:00] production.ERROR: Oops {"a":1}',
        {"level": "ERROR", "logger": "production", "message": 'Oops {"a":1}'},
    ),
    "postgresql": (
        "2024-01-01 12:00:00.123 UTC [1234] LOG:  database system is ready",
        {
            "level": "INFO",
            "timestamp": "2024-01-01T12:00:00.123Z",
            "pid": 1234,
            "message": "database system is ready",
        },
    ),
    "mysql": (
        "2024-01-01T12:00:00.123456Z 0 [Warning] [MY-010068] [Server] CA certificate is self signed.",
        {"level": "WARN", "timestamp": "2024-01-01T12:00:00.123456Z", "thread": "MY-010068"},
    ),
    "redis": (
        "1:M 01 Jan 2024 12:00:00.123 * Ready to accept connections",
        {
            "timestamp": "2024-01-01T12:00:00.123",
            "program": "1:M",
            "message": "* Ready to accept connections",
        },
    ),
    "mongodb": (
        '{"t":{"$date":"2024-01-01T12:00:00.123+00:00"},"s":"W","c":"NETWORK","msg":"Listening"}',
        {
            "level": "WARN",
            "timestamp": "2024-01-01T12:00:00.123+00:00",
            "message": "Listening",
            "c": "NETWORK",
        },
    ),
    "nginx error": (
        "2024/01/01 12:00:00 [crit] 123#0: *1 connect() failed",
        {"level": "FATAL", "timestamp": "2024-01-01T12:00:00", "pid": 123, "message": "*1 connect() failed"},
    ),
    "access log": (
        '127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a.gif HTTP/1.0" 503 2326 '
        '"http://x" "Mozilla/4.08"',
        {
            "level": "ERROR",
            "timestamp": "2000-10-10T13:55:36-07:00",
            "client": "127.0.0.1",
            "user": "frank",
            "method": "GET",
            "path": "/a.gif",
            "status": 503,
            "bytes": 2326,
            "referer": "http://x",
            "agent": "Mozilla/4.08",
        },
    ),
    "access log without size": (
        '::1 - - [10/Oct/2000:13:55:36 +0000] "-" 408 -',
        {"level": "WARN", "status": 408, "client": "::1"},
    ),
    "syslog rfc 5424": (
        '<165>1 2003-10-11T22:14:15.003Z m.example.com evntslog 77 ID47 [x@1 iut="3"] An application event',
        {
            "level": "INFO",
            "timestamp": "2003-10-11T22:14:15.003Z",
            "host": "m.example.com",
            "program": "evntslog",
            "pid": 77,
            "message_id": "ID47",
            "message": "An application event",
        },
    ),
    "syslog with an ISO timestamp": (
        "2024-01-01T12:00:00.123456+00:00 web1 sshd[23]: Failed password",
        {"host": "web1", "program": "sshd", "pid": 23, "message": "Failed password"},
    ),
    "syslog rfc 3164 with priority": (
        "<34>Oct 11 22:14:15 web1 su[23]: 'su root' failed",
        {"level": "FATAL", "host": "web1", "program": "su", "message": "'su root' failed"},
    ),
    "klog": (
        "E0301 12:00:00.123456    12 file.go:12] starting",
        {"level": "ERROR", "pid": 12, "logger": "file.go:12", "message": "starting"},
    ),
    "container log": (
        '2024-01-01T12:00:00.123456789Z stderr F {"level":"warn","msg":"hello"}',
        {
            "level": "WARN",
            "timestamp": "2024-01-01T12:00:00.123456789Z",
            "stream": "stderr",
            "message": "hello",
        },
    ),
    "logfmt": (
        'time="2024-01-01T12:00:00Z" level=error msg="it \\"broke\\"" code=7',
        {"level": "ERROR", "timestamp": "2024-01-01T12:00:00Z", "message": 'it "broke"', "code": "7"},
    ),
    "json with epoch milliseconds": (
        '{"ts": 1700000000500, "severity": "WARNING", "message": "late", "nested": {"a": [1]}}',
        {"level": "WARN", "timestamp": "2023-11-14T22:13:20.500Z", "message": "late", "nested": {"a": [1]}},
    ),
    "dpkg": (
        "2025-06-24 14:36:25 status half-configured libsystemd0:amd64 252.36-1",
        {"timestamp": "2025-06-24T14:36:25", "message": "status half-configured libsystemd0:amd64 252.36-1"},
    ),
    "update-alternatives": (
        "update-alternatives 2025-06-24 14:36:53: run with --quiet",
        {"program": "update-alternatives", "timestamp": "2025-06-24T14:36:53", "message": "run with --quiet"},
    ),
    "no form at all": (
        "just words: nothing else",
        {"level": "INFO", "timestamp": None, "message": "just words: nothing else"},
    ),
    "a date that does not exist": (
        "2024-13-45 99:00:00 ERROR broken",
        {"level": "INFO", "timestamp": None, "message": "2024-13-45 99:00:00 ERROR broken"},
    ),
    "broken json": ('{"not json', {"message": '{"not json', "timestamp": None}),
    "empty": ("", {"level": "INFO", "message": "", "timestamp": None}),
}


@pytest.mark.parametrize("name", LINES)
def test_a_line_of_a_known_system_is_read_into_its_fields(name):
    line, expected = LINES[name]
    fields = parse_line(line, "f.log")
    assert {key: fields.get(key) for key in expected} == expected
    assert fields["source"] == "f.log"


def test_a_structured_line_cannot_pretend_another_source():
    fields = parse_line('{"source": "elsewhere", "message": "m"}', "f.log")
    assert (fields["source"], fields["source_"]) == ("f.log", "elsewhere")


def test_a_stack_trace_goes_into_the_message():
    fields = parse_line("2024-01-01 12:00:00 ERROR app: boom\njava.lang.X: y\n\tat a.b(C.java:1)\n", "f")
    assert fields["message"] == "boom\njava.lang.X: y\n\tat a.b(C.java:1)"
    assert fields["logger"] == "app"


@pytest.mark.parametrize("name", ["Apache", "HDFS", "OpenStack", "Zookeeper"])
def test_every_line_of_a_real_log_has_its_timestamp_and_a_level(name, real_logs):
    if not real_logs:
        pytest.skip("the samples of real logs are not on this machine")
    (path,) = (log for log in real_logs if log.name == f"{name}_2k.log")
    lines = path.read_bytes().decode().split("\n")
    parsed = [parse_line(line, name) for line in lines if line.strip()]
    assert all(fields["timestamp"] for fields in parsed)
    assert sum(
        f" {fields['level']}".upper() in line.upper() or "[" in line
        for fields, line in zip(parsed, lines, strict=False)
    ) == len(parsed)


def test_lines_in_lines_in_lines_do_no_harm():
    nested = "2024-01-01T12:00:00.1Z stdout F " * 2000
    assert parse_line(nested, "f")["stream"] == "stdout"
    parse_line("<34>" * 5000, "f")
    parse_line("[" * 50_000, "f")
    parse_line("a=" * 30_000, "f")
    parse_line('{"a":' * 5_000, "f")


def test_numbers_that_json_does_not_have_become_text():
    assert parse_line('{"message": "m", "load": NaN}', "f")["load"] == "NaN"


@given(st.text(max_size=200))
def test_any_text_gives_a_record_that_json_can_hold(text):
    fields = parse_line(text, "f")
    assert {"source", "level", "message", "timestamp"} <= fields.keys()
    assert fields["level"] in ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
    json.dumps(fields)
    has_header(text)


@given(
    st.from_regex(
        r"[\[]?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d|\w{3} \d\d \d\d:\d\d:\d\d)[\]]? .{0,60}", fullmatch=True
    )
)
def test_what_looks_like_a_timestamp_is_iso_8601_or_nothing(text):
    timestamp = parse_line(text, "f")["timestamp"]
    assert timestamp is None or datetime.fromisoformat(timestamp)


def test_syslog_dates_lie_in_the_past_year():
    tomorrow = datetime.now() + timedelta(days=2)
    taken = parse_timestamp(f"{tomorrow:%b} {tomorrow.day:2} 10:00:00 host")
    assert taken is not None
    assert datetime.fromisoformat(taken[0]) < datetime.now() + timedelta(days=1)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1_700_000_000, "2023-11-14T22:13:20.000Z"),
        (1_700_000_000_000_000, "2023-11-14T22:13:20.000Z"),
        ("1700000000", "2023-11-14T22:13:20.000Z"),
        (12, None),
        (True, None),
        ("soon", None),
        (None, None),
        (float("nan"), None),
        (float("inf"), None),
    ],
)
def test_epoch_numbers_of_any_unit_are_timestamps(value, expected):
    assert iso_timestamp(value) == expected
