"""An identity provider for tests: an HTTP server on this machine with a JWKS and a token endpoint."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

ISSUER = "https://provider.test/"
AUDIENCE = "barnabas"


class IdentityProvider:
    """An HTTP server that gives a token to every client. The client id is the user's name; any secret is
    valid.

    Attributes:
        tokens: the number of tokens given.
        lifetime_s: the lifetime of the tokens, in seconds.
    """

    def __init__(self, lifetime_s: int = 300) -> None:
        self.lifetime_s = lifetime_s
        self.tokens = 0
        self.keys: list[Any] = [RSAKey.generate_key(2048, {"use": "sig"}, auto_kid=True)]
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(provider.jwks)

            def do_POST(self) -> None:
                form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                basic = self.headers.get("Authorization", "").removeprefix("Basic ")
                named = base64.b64decode(basic).decode().partition(":")[0]
                user = urllib.parse.unquote(named) or form["client_id"][0]
                token = {"access_token": provider.token(user), "token_type": "Bearer"}
                self.answer(json.dumps({**token, "expires_in": provider.lifetime_s}).encode())

            def answer(self, document: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(document)))
                self.end_headers()
                self.wfile.write(document)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def jwks(self) -> bytes:
        return json.dumps(KeySet(self.keys).as_dict(private=False)).encode()

    def rotate(self) -> None:
        """Sign with a new key, and forget the old one."""
        self.keys = [ECKey.generate_key("P-256", {"use": "sig"}, auto_kid=True)]

    def token(self, user: str, **claims: object) -> str:
        """Return a token. `claims` replace its default claims; None removes a claim."""
        self.tokens += 1
        now = int(time.time())
        said = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": user,
            "iat": now,
            "exp": now + self.lifetime_s,
            **claims,
        }
        (key, *_) = self.keys
        header = {"alg": "ES256" if key.key_type == "EC" else "RS256", "kid": key.kid}
        return jwt.encode(header, {name: value for name, value in said.items() if value is not None}, key)

    def settings(self) -> dict[str, str]:
        """Return the settings of a broker that accepts its tokens."""
        return {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": f"{self.url}/keys",
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
        }
