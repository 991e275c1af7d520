"""The web service that issues one-time passwords: POST /codes writes a code to the topic `codes`.

    python service.py --listen 127.0.0.1:8000
    curl -d '{"user": "ann", "phone": "+44 20 7946 0001", "email": "ann@example.org"}' 127.0.0.1:8000/codes

It answers 202 when the broker has stored the record. The answer never contains the code, which goes only to
the user's devices.
"""

from __future__ import annotations

import argparse
import json
import secrets
import threading
import time
import uuid
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from confluent_kafka import KafkaError, KafkaException, Message, Producer

TOPIC = "codes"


class Issuer:
    """Makes codes and sends them to the broker. Several threads can use it."""

    def __init__(self, servers: str, valid_for: float, patience: float) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,  # what the client sends again after a lost answer is stored once
                "delivery.timeout.ms": round(patience * 1000),
                "linger.ms": 0,
            }
        )
        self._valid_for = valid_for
        threading.Thread(target=self._report_deliveries, daemon=True).start()

    def issue(self, user: str, phone: str, email: str) -> dict[str, object]:
        """Issue one code. Return the fields that the caller may know, after the broker's acknowledgement.

        Raises:
            KafkaException: the broker has not acknowledged it in time; the user must request another one.
        """
        told = {"id": uuid.uuid4().hex, "expires_at": time.time() + self._valid_for}
        code = {**told, "code": f"{secrets.randbelow(10**6):06}", "phone": phone, "email": email}
        stored: Future[None] = Future()

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                stored.set_result(None)
            else:
                stored.set_exception(KafkaException(error))

        # one user's codes share a key, hence a partition, hence an order
        self._producer.produce(TOPIC, json.dumps(code), user, on_delivery=on_delivery)
        stored.result()
        return told

    def _report_deliveries(self) -> None:
        while True:
            self._producer.poll(1)


class Handler(BaseHTTPRequestHandler):
    """Handles POST /codes with user, phone and email."""

    server: Service

    def do_POST(self) -> None:
        try:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            user, phone, email = (str(asked[name]) for name in ("user", "phone", "email"))
        except (ValueError, KeyError, TypeError):
            self._answer(400, {"error": "send JSON with user, phone and email"})
            return
        try:
            self._answer(202, self.server.issuer.issue(user, phone, email))
        except (KafkaException, BufferError) as error:
            self._answer(503, {"error": f"no code was issued, ask again: {error}"})

    def _answer(self, status: int, body: dict[str, object]) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode() + b"\n")

    def log_message(self, *_: object) -> None:
        """Do nothing, because the standard library would print a line for each request."""


class Service(ThreadingHTTPServer):
    def __init__(self, address: tuple[str, int], issuer: Issuer) -> None:
        super().__init__(address, Handler)
        self.issuer = issuer


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092")
    parser.add_argument("--listen", default="127.0.0.1:8000", help="port 0 takes a free one")
    parser.add_argument("--valid-for", type=float, default=300.0, help="how long a code is good, in seconds")
    parser.add_argument(
        "--patience", type=float, default=10.0, help="how long to wait for the broker, in seconds"
    )
    given = parser.parse_args()
    host, _, port = given.listen.rpartition(":")
    with Service(
        (host, int(port)), Issuer(given.bootstrap_server, given.valid_for, given.patience)
    ) as service:
        print(f"ready http://{host}:{service.server_port}", flush=True)
        service.serve_forever()


if __name__ == "__main__":
    main()
