"""Fixtures for tests of several packages."""

from __future__ import annotations

import socket

import pytest


@pytest.fixture
def unknown_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let host names fail to resolve at once, because the machine's own resolver can take long."""

    def resolve(host: str, *arguments: object, **options: object) -> object:
        if host[0].isalpha():
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return original(host, *arguments, **options)  # type: ignore[arg-type]

    original = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
