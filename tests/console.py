"""A console in a thread of the tests, and requests as a browser sends them."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from barnabas.console.server import ConsoleSettings, claim, serve


class HttpResponse(NamedTuple):
    status: int
    body: Any
    headers: Any


class RunningConsole:
    """A console in a thread. `get` and `change` send the cookie of the link."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._ready = threading.Event()
        self._claimed = claim(settings.listen)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self.link = ""
        self.cookie = ""

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._serving = asyncio.ensure_future(serve(self._settings, self._claimed, self._announce))
        await asyncio.gather(self._serving, return_exceptions=True)

    def _announce(self, link: str) -> None:
        self.link = link
        self._ready.set()

    def __enter__(self) -> RunningConsole:
        self._thread.start()
        assert self._ready.wait(60)
        if "token" in self.link:
            cookie = self.open(self.link).headers["Set-Cookie"]
            self.cookie = cookie.partition(";")[0]
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._serving.cancel)
        self._thread.join(60)
        self._claimed.close()

    @property
    def url(self) -> str:
        return "{0.scheme}://{0.netloc}/".format(urlsplit(self.link))

    def open(self, url: str, body: Any = None, **headers: str) -> HttpResponse:
        """Send any request, without a cookie."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(url, data)
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return HttpResponse(response.status, _loaded(response.read()), response.headers)
        except urllib.error.HTTPError as error:
            with error:
                return HttpResponse(error.code, _loaded(error.read()), error.headers)

    def ask(self, page: str, /, **query: Any) -> HttpResponse:
        return self.open(f"{self.url}api/{page}?{urlencode(query)}", Cookie=self.cookie)

    def get(self, page: str, /, **query: Any) -> Any:
        answer = self.ask(page, **query)
        assert answer.status == 200, answer.body
        return answer.body

    def change(self, **wanted: Any) -> HttpResponse:
        return self.open(
            f"{self.url}api/change",
            wanted,
            Cookie=self.cookie,
            Origin=self.url.rstrip("/"),
            Content_Type="application/json",
        )

    def looks(self, topic: str) -> Iterator[Any]:
        """Yield the events of the live picture."""
        url = f"{self.url}api/live?{urlencode({'topic': topic})}"
        request = urllib.request.Request(url, headers={"Cookie": self.cookie})
        with urllib.request.urlopen(request, timeout=60) as response:
            for line in response:
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])


def _loaded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode()
