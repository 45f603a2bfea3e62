"""A mail server without encryption, which keeps what it gets."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message


class _Session(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self._answer("220 mail.test")
        while line := self.rfile.readline():
            verb = line.split()[0].upper()
            if verb == b"DATA":
                self._answer("354 end with a dot")
                self.server.mails.append(message_from_bytes(self._content()))  # type: ignore[attr-defined]
            self._answer("221 bye" if verb == b"QUIT" else "250 ok")
            if verb == b"QUIT":
                return

    def _answer(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())

    def _content(self) -> bytes:
        lines = iter(self.rfile.readline, b".\r\n")
        return b"".join(lines)


@contextmanager
def mail_server() -> Iterator[tuple[int, list[Message]]]:
    """Its port on localhost, and the mails that it has got."""
    mails: list[Message] = []
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Session) as server:
        server.daemon_threads = True
        server.mails = mails  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1], mails
        finally:
            server.shutdown()
