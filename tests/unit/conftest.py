"""What tests of several packages share."""

from __future__ import annotations

import socket

import pytest


@pytest.fixture
def unknown_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names do not resolve, at once: a machine's own resolver may take its time to say so."""

    def resolve(host: str, *arguments: object, **options: object) -> object:
        if host[0].isalpha():
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return original(host, *arguments, **options)  # type: ignore[arg-type]

    original = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
