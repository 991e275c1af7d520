"""Simulates the companies that deliver SMS and e-mail: it accepts each key once, and remembers the messages.

    python gateway.py gateway.db --listen 127.0.0.1:8001
    python gateway.py gateway.db --sent

It serves POST /sms and /email, with the header `Idempotency-Key`. The body is JSON with `to`, `text` and
`valid_until` (seconds since 1970). The status of the answer is:

- 201: the message is sent.
- 200: the message with this key was sent before. It is not sent again.
- 410: the message is too late, and is not sent.
- 422: another message has this key.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_TABLE = """
CREATE TABLE IF NOT EXISTS sent (
    channel TEXT, key TEXT, recipient TEXT, text TEXT, sender TEXT, at REAL, PRIMARY KEY (channel, key)
)
"""


class Outbox:
    """The sent messages. One row has a message and its key, so the disk has both or neither."""

    def __init__(self, path: str) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, check_same_thread=False)
        self._database.execute(_TABLE)

    def send(
        self, channel: str, key: str, recipient: str, text: str, valid_until: float, sender: str
    ) -> HTTPStatus:
        """Send a message, unless its key is known or the message is too late.

        The key is checked first. So a message that was sent in time always gets the answer that it was sent.
        """
        with self._lock, self._database:  # one transaction; no other request comes in between
            found = self._database.execute(
                "SELECT recipient, text FROM sent WHERE channel = ? AND key = ?", (channel, key)
            ).fetchone()
            if found:
                return HTTPStatus.OK if found == (recipient, text) else HTTPStatus.UNPROCESSABLE_ENTITY
            now = time.time()
            if now >= valid_until:
                return HTTPStatus.GONE
            row = (channel, key, recipient, text, sender, now)
            self._database.execute("INSERT INTO sent VALUES (?, ?, ?, ?, ?, ?)", row)
            return HTTPStatus.CREATED

    def sent(self) -> list[tuple[str, str, str, str, str]]:
        """Return the sent messages in order: channel, key, recipient, text, sender."""
        with self._lock:
            return self._database.execute(
                "SELECT channel, key, recipient, text, sender FROM sent ORDER BY at"
            ).fetchall()


class Handler(BaseHTTPRequestHandler):
    """Handles POST /sms and /email."""

    server: Gateway

    def do_POST(self) -> None:
        try:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            to, text, valid_until = str(message["to"]), str(message["text"]), float(message["valid_until"])
        except (ValueError, KeyError, TypeError):
            self._answer(HTTPStatus.BAD_REQUEST)
            return
        channel, key = self.path.strip("/"), self.headers["Idempotency-Key"]
        sender = self.headers["User-Agent"] or ""
        if channel not in ("sms", "email") or not key:
            self._answer(HTTPStatus.BAD_REQUEST)
            return
        self._answer(self.server.outbox.send(channel, key, to, text, valid_until, sender))

    def _answer(self, status: HTTPStatus) -> None:
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Do nothing, because the standard library would print a line for each request."""


class Gateway(ThreadingHTTPServer):
    request_queue_size = 100

    def __init__(self, address: tuple[str, int], outbox: Outbox) -> None:
        super().__init__(address, Handler)
        self.outbox = outbox


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("database", help="the SQLite file that holds what went out")
    parser.add_argument("--listen", default="127.0.0.1:8001", help="port 0 takes a free one")
    parser.add_argument("--sent", action="store_true", help="print what went out, then end")
    given = parser.parse_args()
    outbox = Outbox(given.database)
    if given.sent:
        for channel, key, recipient, text, sender in outbox.sent():
            print(f"{channel:5}  {key}  {recipient}  {text!r}  by {sender}")
        return
    host, _, port = given.listen.rpartition(":")
    with Gateway((host, int(port)), outbox) as gateway:
        print(f"ready http://{host}:{gateway.server_port}", flush=True)
        gateway.serve_forever()


if __name__ == "__main__":
    main()
