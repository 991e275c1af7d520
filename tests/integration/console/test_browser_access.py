"""Access to the console, and attacks by pages of other sites."""

from __future__ import annotations

import urllib.error
import urllib.request
from base64 import b64encode

import pytest


def test_the_link_lets_in_once(console):
    assert console.open(console.link).status == 403
    assert console.get("console")["allow_writes"] is True


def test_without_the_cookie_nothing_is_told(console):
    for path in ("", "api/overview", "static/app.js", "api/live?topic=x"):
        answer = console.open(console.url + path)
        assert answer.status == 401, path
        assert answer.body == {"error": "open the link that the console has printed; it works once"}


def test_another_host_name_is_refused(console):
    answer = console.open(f"{console.url}api/overview", Cookie=console.cookie, Host="evil.example:80")
    assert answer.status == 421


def test_changes_come_from_the_consoles_own_pages_only(console):
    wanted = {"do": "create-topic", "topic": "stolen", "execute": True}
    url = f"{console.url}api/change"
    own = {"Cookie": console.cookie, "Content_Type": "application/json"}
    assert console.open(url, wanted, **own).status == 403
    assert console.open(url, wanted, **own, Origin="http://evil.example").status == 403
    assert console.open(url, wanted, **own, Origin="null").status == 403
    text = {**own, "Content_Type": "text/plain", "Origin": console.url.rstrip("/")}
    assert console.open(url, wanted, **text).status == 403
    assert not console.get("topics", search="stolen")["topics"]


def test_every_answer_forbids_scripts_from_elsewhere(console):
    for path in ("", "api/overview", "static/app.js", "nowhere"):
        headers = console.open(console.url + path, Cookie=console.cookie).headers
        assert "default-src 'none'; script-src 'self'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"


def test_users_of_a_file_get_in_by_their_password(start_console):
    console = start_console(users={"ana": "secret"})
    url = f"{console.url}api/console"

    def ask(text):
        return console.open(url, Authorization="Basic " + b64encode(text.encode()).decode()).status

    assert console.open(url).status == 401
    assert ask("ana:wrong") == ask("bob:secret") == ask("ana") == 401
    assert ask("ana:secret") == ask("ana:secret") == 200
    assert console.open(url, Authorization="Basic %%%").status == 401


def test_a_console_that_only_reads_tells_the_command_and_does_nothing(start_console, topic):
    console = start_console()
    wanted = {"do": "delete-topic", "topic": topic.name, "confirm": topic.name}
    told = console.change(**wanted).body
    assert told["command"].startswith(f"barnabas topics delete {topic.name} --bootstrap-server 127.0.0.1:")
    answer = console.change(**wanted, execute=True)
    assert answer.status == 403 and "--allow-writes" in answer.body["error"]
    assert console.get("topics", search=topic.name)["count"] == 1


def test_the_pages_are_small():
    """A browser loads them at once, also over a slow connection."""
    import gzip
    from importlib.resources import files

    static = files("barnabas.console").joinpath("static")
    assert sum(len(gzip.compress(each.read_bytes())) for each in static.iterdir()) < 150_000


def test_a_request_that_is_no_http_has_no_traceback_in_the_log(console, caplog):
    with caplog.at_level("INFO"), pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(f"{console.url}?{'a' * 9000}", timeout=60)
    assert not caplog.records
