"""The browsers that a console admits: by a link that works once or a password, from its own pages only."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from barnabas.console.browser_access import COOKIE, BrowserAccess

HOST = "127.0.0.1:8080"
OWN = {"Origin": f"http://{HOST}", "Content-Type": "application/json"}


def status(access, method="GET", path="/api/overview", **headers):
    headers = {"Host": HOST, **{name.replace("_", "-"): value for name, value in headers.items()}}
    refusal = access.check(make_mocked_request(method, path, headers=headers))
    return 200 if refusal is None else refusal.status


def cookie_of(access):
    response = web.Response()
    access.let_in(response, "/")
    cookie = response.cookies[COOKIE]
    assert cookie["httponly"] and cookie["samesite"] == "Strict"
    return f"{COOKIE}={cookie.value}"


def basic(text):
    return "Basic " + b64encode(text.encode()).decode()


def test_the_link_works_once_and_the_cookie_from_then_on():
    access = BrowserAccess([HOST])
    token = access.link.partition("token=")[2]
    assert not access.use_token("wrong") and not access.use_token("ünicode")
    assert access.use_token(token) and not access.use_token(token)
    assert status(access) == 401
    assert status(access, Cookie=cookie_of(access)) == 200
    assert status(access, Cookie=f"{COOKIE}=stolen") == 401


def test_the_page_of_the_link_is_open_to_all_but_not_under_another_name():
    access = BrowserAccess([HOST])
    assert status(access, path="/login?token=x") == 200
    assert status(access, path="/login?token=x", Host="evil.example:8080") == 421


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1:8081", "127.0.0.1", ""])
def test_a_name_that_is_not_the_consoles_is_refused_even_with_the_cookie(host):
    access = BrowserAccess([HOST])
    assert status(access, Cookie=cookie_of(access), Host=host) == 421


def test_a_console_behind_a_proxy_answers_under_any_name():
    access = BrowserAccess(None)
    assert status(access, Cookie=cookie_of(access), Host="kafka.example") == 200


def test_names_of_hosts_have_no_case():
    access = BrowserAccess(["Kafka.Example:80"])
    own = {**OWN, "Origin": "http://KAFKA.example:80"}
    assert status(access, "POST", Cookie=cookie_of(access), Host="kafka.EXAMPLE:80", **own) == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": HOST},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
    ],
)
def test_a_change_from_elsewhere_is_refused_even_with_the_cookie(wrong):
    access = BrowserAccess([HOST])
    cookie = cookie_of(access)
    assert status(access, "POST", "/api/change", Cookie=cookie, **OWN) == 200
    assert status(access, "POST", "/api/change", Cookie=cookie, **{**OWN, **wrong}) == 403


def test_users_send_their_password_and_there_is_no_link():
    access = BrowserAccess([HOST], {"ana": "se:sa me", "bob": ""})
    assert access.link == ""
    assert status(access, Authorization=basic("ana:se:sa me")) == 200
    for wrong in ("ana:sesame", "ana", "eve:se:sa me", "bob"):
        assert status(access, Authorization=basic(wrong)) == 401, wrong
    for wrong in ("Basic %%%", "Basic", "Bearer " + basic("ana:se:sa me")[6:], "Basic //79"):
        assert status(access, Authorization=wrong) == 401, wrong
    assert status(access, Cookie=cookie_of(access)) == 401, "no cookie stands for a password"


def test_a_browser_is_told_to_ask_for_the_password():
    request = make_mocked_request("GET", "/", headers={"Host": HOST})
    refusal = BrowserAccess([HOST], {"ana": "sesame"}).check(request)
    assert refusal is not None and refusal.headers["WWW-Authenticate"].startswith("Basic ")
    assert json.loads(refusal.text) == {"error": "a user and a password are needed"}
