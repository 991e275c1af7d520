"""A URL with a user and a password in messages: the password never appears, however malformed the URL is."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.text import is_plain_url, without_userinfo
from barnabas.client.schemas.registry import SchemaRegistry
from barnabas.pipelines.sink_options import SinkOptions
from barnabas.spark.option_values import invalid_option

#: upper case, as nothing else in these URLs and messages is
passwords = st.text(string.ascii_uppercase, min_size=2, max_size=5)
odd = st.text(":/@?#[]% \tü℀&=;", max_size=3)


@st.composite
def urls(draw: st.DrawFn) -> tuple[str, str]:
    """Generate any URL, and a part of its password."""
    scheme = draw(
        st.sampled_from(["http://", "https://", "postgresql://", "http:/", "http//", "://", "", "ht tp://"])
    )
    piece = draw(passwords)
    password = draw(odd) + piece + draw(odd)
    place = draw(st.sampled_from(["host", "host:8081", "host:80x", "[::1]:8081", "[::1", "", "host/db?x=1"]))
    return f"{scheme}user:{password}@{place}", piece


@given(urls())
def test_the_password_is_in_no_message(known: tuple[str, str]) -> None:
    url, piece = known
    assert piece not in without_userinfo(url)
    assert piece not in str(invalid_option("registry", url, "no"))
    try:
        client = SchemaRegistry(url)
    except ConfigError as error:
        assert piece not in str(error)
    else:
        assert piece not in client._url
        assert piece not in " ".join([*client.options, *client.curl("GET", "/subjects")])
    try:
        SinkOptions.parse({"postgres": url, "table": "t"})
    except BarnabasError as error:
        assert piece not in str(error)
    else:
        assert url.startswith("postgresql://") or "://" not in url or is_plain_url(url)


@pytest.mark.parametrize(
    ("url", "as_shown"),
    [
        ("http://host:8081", "http://host:8081"),
        ("http://u:p@host:8081/x", "http://[hidden]@host:8081/x"),
        ("http://u:p/q@host", "http://[hidden]@host"),
        ("u:p@host", "[hidden]@host"),
        ("postgresql://h/d?user=u&password=p&x=1", "postgresql://h/d?user=u&password=[hidden]&x=1"),
        ("host=h password = 'p \\' q' user=u", "host=h password = [hidden] user=u"),
        ("a plain value", "a plain value"),
    ],
)
def test_what_is_shown_of_a_url(url: str, as_shown: str) -> None:
    assert without_userinfo(url) == as_shown


@pytest.mark.parametrize(
    "url",
    [
        "http://h",
        "http://u@h",
        "http://u:p%40q@h:1/x?y#z",
        "postgresql:///db",
        "postgresql://u:p@a:1,b:2/d",
        "http://[::1]:8081",
        "http://[::1]",
    ],
)
def test_a_url_that_everyone_reads_alike_is_plain(url: str) -> None:
    assert is_plain_url(url)


def test_a_percent_encoded_password_is_decoded() -> None:
    headers = SchemaRegistry("http://u%40x:p%2Fq@host")._headers
    assert headers["Authorization"] == "Basic dUB4OnAvcQ=="
