"""`barnabas console`, and `barnabas start --console`, as processes."""

from __future__ import annotations

import http.cookiejar
import json
import signal
import urllib.request

import pytest


def opened(link):
    """Return an opener with the cookies of a browser that has opened the link."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    browser.open(link, timeout=60).close()

    def ask(page):
        with browser.open(f"{link.partition('login')[0]}api/{page}", timeout=60) as answer:
            return json.load(answer)

    return ask


def said(process, word):
    first, _, rest = process.stdout.readline().strip().partition(" ")
    assert first == word
    return rest


def test_a_console_runs_by_itself_until_a_signal(launch, barnabas_broker):
    servers = barnabas_broker.bootstrap_servers
    process = launch("console", "--listen", "127.0.0.1:0", "--bootstrap-server", servers)
    ask = opened(said(process, "ready"))
    assert ask("console") == {
        "servers": servers,
        "allow_writes": False,
        "registry": False,
        "hide_values": False,
    }
    assert [b["address"] for b in ask("overview")["brokers"]] == [servers]
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")


def test_a_console_runs_beside_a_broker_and_ends_with_it(launch):
    process = launch("start", "--listen", "127.0.0.1:0", "--console", "127.0.0.1:0")
    address = said(process, "ready")
    link = said(process, "console")
    ask = opened(link)
    assert ask("console")["servers"] == address and ask("console")["allow_writes"]
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    with pytest.raises(OSError, match="refused"):
        ask("console")


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (("--listen", "0.0.0.0:0"), "add --auth-file"),
        (("--listen", "127.0.0.1:x"), "HOST:PORT"),
        (("--mask", "orders"), "write TOPIC:$.PATH"),
    ],
    ids=str,
)
def test_what_would_not_be_safe_or_sound_is_refused_with_its_cure(launch, options, hint):
    process = launch("console", *options)
    out, err = process.communicate(timeout=60)
    assert process.returncode in (1, 2) and out == ""
    assert hint in err and len(err.strip().splitlines()) == 1


def test_a_password_file_that_others_may_read_is_refused(launch, tmp_path):
    (tmp_path / "users").write_text("ana:secret\n")
    (tmp_path / "users").chmod(0o644)
    process = launch("console", "--auth-file", str(tmp_path / "users"))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "chmod 600" in err and "secret" not in err
