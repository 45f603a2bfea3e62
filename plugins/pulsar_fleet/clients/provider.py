"""A Pulsar client that follows a connection document: the operator changes it, and the client moves while it runs.

This module imports pulsar-client and the standard library only, so an application may also copy the file.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pulsar

log = logging.getLogger(__name__)

_TOKEN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"  # noqa: S105 a class of Java's client
_TLS = "org.apache.pulsar.client.impl.auth.AuthenticationTls"
_SCHEMES = ("pulsar://", "pulsar+ssl://")
_READ_SECONDS = 5.0
_MOST_BYTES = 65_536
_KEPT: list[DocumentProvider] = []
"""pulsar-client 3.13.0 aborts the process in `Client.close()` where nothing else refers to the provider (observed)."""


class DocumentProvider(pulsar.ServiceInfoProvider):  # type: ignore[misc]
    """For one `pulsar.Client(DocumentProvider(…))`: connects where the document says, and moves when it says another
    place. While the document cannot be read, or is not valid, the client stays where it is.

    :param url: of the document: `http`, `https` or `file`.
    :param copy: file in which the last valid document is kept, so that an application which starts while it cannot be
        read begins where the others are.
    :param default: service URL where neither can be read; without one the client is not created then.
    :param token: what the server of the document wants in `Authorization: Bearer`; called at each read.
    :param authentication: of the clusters, where the document names none.
    :param poll_seconds: between two reads.
    """

    def __init__(
        self,
        url: str,
        *,
        copy: str = "",
        default: str = "",
        token: Callable[[], str] | None = None,
        authentication: pulsar.Authentication | None = None,
        poll_seconds: float = 1.0,
    ) -> None:
        self._url = url
        self._copy = Path(copy) if copy else None
        self._default = default
        self._token = token
        self._authentication = authentication
        self._poll_seconds = poll_seconds
        self._followed: dict[str, Any] = {}
        self._kept: dict[str, Any] = {}
        self._kept_badly = False
        self._problem = ""
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def initial_service_info(self) -> pulsar.ServiceInfo:
        """Where to connect first; `ValueError` if nothing says it."""
        if self._thread:
            raise ValueError("A provider is of one client: make another one for this client.")
        for read in (self._fetched, self._copied):
            try:
                document = read()
                info = self._info(document)
            except Exception as error:
                self._say(error)
            else:
                self._followed = document
                self._keep()
                return info
        if not self._default:
            raise ValueError(f"{self._shown} does not say where to connect: {self._problem}")
        self._followed = {"serviceUrl": self._default}
        return self._info(self._followed)

    def initialize(self, on_service_info_update: Callable[[pulsar.ServiceInfo], None]) -> None:
        """Follow the document from now on."""
        _KEPT.append(self)
        self._thread = threading.Thread(target=self._follow, args=(on_service_info_update,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End following; the client calls it when it is closed."""
        self._stopped.set()
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join(self._poll_seconds)

    def _follow(self, update: Callable[[pulsar.ServiceInfo], None]) -> None:
        while not self._stopped.wait(self._poll_seconds):
            # Whatever goes wrong, the client must stay where it is, and follow the next valid document.
            try:
                document = self._fetched()
                if document != self._followed and not self._stopped.is_set():
                    update(self._info(document))
                    log.info("%s: the client moves to %s", self._shown, document["serviceUrl"])
                    self._followed = document
                self._keep()
                self._problem = ""
            except Exception as error:
                self._say(error)

    def _keep(self) -> None:
        """Keep what is followed, at the next read if it cannot be now."""
        if self._copy is None or self._kept == self._followed:
            return
        try:
            draft = self._copy.with_name(f"{self._copy.name}.{os.getpid()}.new")
            draft.write_text(json.dumps(self._followed))
            draft.replace(self._copy)
        except OSError as error:
            if not self._kept_badly:
                log.warning("%s cannot be kept, a restart may begin elsewhere: %s", self._copy, error)
            self._kept_badly = True
        else:
            self._kept, self._kept_badly = self._followed, False

    def _say(self, error: Exception) -> None:
        """Once for each problem."""
        problem = f"{type(error).__name__}: {error}"
        if problem != self._problem:
            log.warning("%s cannot be followed, the client stays where it is: %s", self._shown, problem)
        self._problem = problem

    @property
    def _shown(self) -> str:
        """The address without what may be a secret."""
        parts = urlsplit(self._url)
        return parts._replace(query="", netloc=parts.netloc.rpartition("@")[2]).geturl()

    def _fetched(self) -> dict[str, Any]:
        request = urllib.request.Request(self._url)  # noqa: S310 the application's own address
        if self._token:
            request.add_unredirected_header("Authorization", f"Bearer {self._token().strip()}")
        with _OPENER.open(request, timeout=_READ_SECONDS) as answer:
            return _checked(answer.read(_MOST_BYTES))

    def _copied(self) -> dict[str, Any]:
        if self._copy is None:
            raise ValueError(self._problem)
        return _checked(self._copy.read_bytes())

    def _info(self, document: dict[str, Any]) -> pulsar.ServiceInfo:
        return pulsar.ServiceInfo(
            document["serviceUrl"], self._authenticated(document), document.get("tlsTrustCertsFilePath") or None
        )

    def _authenticated(self, document: dict[str, Any]) -> pulsar.Authentication | None:
        plugin, parameters = document.get("authPluginClassName"), str(document.get("authParamsString") or "")
        if not plugin:
            return self._authentication
        if plugin == _TOKEN and parameters.startswith("file://"):
            path = Path(parameters.removeprefix("file://"))
            # Read at each connection, so that a token can be replaced.
            return pulsar.AuthenticationToken(lambda: path.read_text().strip())
        if plugin == _TLS:
            files = dict(part.split(":", 1) for part in parameters.split(","))
            return pulsar.AuthenticationTLS(files["tlsCertFile"], files["tlsKeyFile"])
        raise ValueError(f"it names {plugin}, which this client does not have")


class _SameServer(urllib.request.HTTPRedirectHandler):
    """Who answers elsewhere would decide where clients send their credentials."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        if (before.scheme, before.netloc) != (after.scheme, after.netloc):
            raise ValueError(f"it is redirected to another server, {after.scheme}://{after.netloc}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = urllib.request.build_opener(_SameServer)


def _checked(content: bytes) -> dict[str, Any]:
    document = json.loads(content)
    if not isinstance(document, dict) or not str(document.get("serviceUrl", "")).startswith(_SCHEMES):
        raise ValueError("it has no 'serviceUrl' that begins with pulsar:// or pulsar+ssl://")
    return document
