"""An issuer of OAuth 2.0 tokens for tests: a real HTTP server that knows one client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

CLIENT, SECRET = "fleet", "s3cret-of-the-fleet-91ac"


class Issuer:
    """Gives the tokens that `make_token` makes, which live for `life_seconds`; keeps what it was asked."""

    def __init__(self, url: str, make_token: Callable[[], str]) -> None:
        self.url = url
        self.make_token = make_token
        self.life_seconds: float = 3600
        self.asked: list[dict[str, str]] = []

    def key_file(self, folder: Path, secret: str = SECRET) -> str:
        """Write a key file as Pulsar's clients take it."""
        path = folder / f"key-{secret}.json"
        key = {"type": "client_credentials", "client_id": CLIENT, "client_secret": secret, "issuer_url": self.url}
        path.write_text(json.dumps(key))
        return str(path)

    def answer(self, form: dict[str, str]) -> tuple[int, dict[str, object]]:
        """To a request for a token."""
        self.asked.append(form)
        if (form["grant_type"], form["client_id"], form["client_secret"]) != ("client_credentials", CLIENT, SECRET):
            return 401, {"error": "invalid_client", "error_description": "Client authentication failed"}
        return 200, {"access_token": self.make_token(), "token_type": "Bearer", "expires_in": self.life_seconds}


@contextmanager
def issuing(make_token: Callable[[], str]) -> Iterator[Issuer]:
    """An issuer on a free port of this machine, until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_configuration = self.path == "/.well-known/openid-configuration"
            document = {"token_endpoint": f"{issuer.url}/token"} if is_configuration else {}
            self._send(200 if is_configuration else 404, document)

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self._send(*issuer.answer({name: values[0] for name, values in form.items()}))

        def _send(self, status: int, document: dict[str, object]) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("localhost", 0), Handler) as server:
        issuer = Issuer(f"http://localhost:{server.server_port}", make_token)
        serving = Thread(target=server.serve_forever)
        serving.start()
        yield issuer
        server.shutdown()
        serving.join()
