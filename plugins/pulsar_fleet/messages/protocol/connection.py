"""One connection to one broker: its address, TCP or TLS, authentication, frames in and commands out.

Not thread-safe. A broker closes a connection after it was idle for a minute.
"""

from __future__ import annotations

import socket
import ssl
import struct
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, Self
from urllib.parse import urlsplit

import numpy as np
from google.protobuf.message import DecodeError

from pulsar_fleet.cluster.connection import ClusterConnection, tls_context
from pulsar_fleet.cluster.errors import (
    Conflict,
    FleetError,
    InvalidRequest,
    NotAllowed,
    NotFound,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)
from pulsar_fleet.messages.protocol import frames as wire
from pulsar_fleet.messages.protocol import pulsar_api_pb2 as api
from pulsar_fleet.messages.protocol.stored_entry import Bytes

BUFFER_BYTES = 1 << 20
LEAST_ROOM_BYTES = 1 << 18
LARGEST_FRAME_BYTES = 256 << 20
_SIZES = struct.Struct(">II").unpack_from


class ConnectionLost(Unavailable):
    """The connection broke, or the broker no longer answers on it."""


class Frame(NamedTuple):
    """The offsets of a frame in the connection's buffer, valid until the next frame is requested.

    :param kind: number of its command.
    :param begin: offset of its command; `end` is the end of the command, `last` the end of the frame.
    """

    kind: int
    begin: int
    end: int
    last: int


class WireConnection:
    """Connects and authenticates; an error says what to do.

    :param cluster: the cluster whose credentials and TLS files are used.
    :param broker_url: the broker to which a proxy forwards; None for a direct connection.
    :param timeout_seconds: for connecting, and for each answer.
    :raises FleetError: `ConnectionLost`; `PermissionDenied` for a certificate that is not trusted or a failed
        authentication; `InvalidRequest` for credentials that cannot be read.
    """

    def __init__(
        self,
        address: BrokerAddress,
        cluster: ClusterConnection,
        *,
        broker_url: str | None = None,
        timeout_seconds: float = 30.0,
    ) -> None:
        self.address = address
        self.broker_url = broker_url
        self._cluster = cluster
        self._timeout_seconds = timeout_seconds
        self._ids = count(1)
        self.buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self.buffer)
        self._bytes = np.frombuffer(self.buffer, np.uint8)
        self._begin = self._end = 0
        self._wait_seconds = 0.0
        try:
            self._socket = self._open()
        except ssl.SSLCertVerificationError as error:
            raise PermissionDenied(
                f"The certificate of {address} is not trusted: {error.verify_message}. Name its authority in the "
                f"extra tls_trust_file of {cluster.name!r}, and a host that the certificate is for.",
                cluster=cluster.name,
            ) from error
        except OSError as error:
            raise self._lost(f"cannot be connected to: {error}") from error
        try:
            self._use_kernel_timeouts()
            self._introduce(broker_url)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the socket; a second call does nothing."""
        with suppress(OSError):
            self._socket.close()

    def next_id(self) -> int:
        """A new number for a request or a consumer of this connection."""
        return next(self._ids)

    def send(self, frame: bytes) -> None:
        """Send one frame."""
        try:
            if self.address.tls:
                self._wait_at_most(self._timeout_seconds)
            self._socket.sendall(frame)
        except OSError as error:
            raise self._lost(f"accepts no more data: {error}") from error

    def next_frame(self, wait_seconds: float) -> Frame | None:
        """The next frame that is not a ping, pong or authentication challenge; None if none comes in time."""
        while True:
            begin, needed = self._begin, 8
            if self._end - begin >= 8:
                size, command = _SIZES(self.buffer, begin)
                if command + 4 > size or size > LARGEST_FRAME_BYTES:
                    raise self._lost("does not speak Pulsar's protocol; a TLS port needs pulsar+ssl://")
                needed = size + 4
                if self._end - begin >= needed:
                    self._begin = begin + needed
                    frame = Frame(self.buffer[begin + 9], begin + 8, begin + 8 + command, begin + needed)
                    if frame.kind not in _OF_THE_CONNECTION:
                        return frame
                    self._serve(frame)
                    continue
            if begin + needed > len(self.buffer):
                self._make_room(needed)
            if not self._receive(wait_seconds):
                return None

    def command(self, frame: Frame) -> api.BaseCommand:
        """Decode the command of the current frame."""
        command = api.BaseCommand()
        try:
            command.ParseFromString(bytes(self.buffer[frame.begin : frame.end]))
        except DecodeError as error:
            raise self._lost("sent a command that cannot be read") from error
        return command

    def content(self, frame: Frame) -> Bytes:
        """The stored entry after a frame's command, a view of the buffer that is valid until the next frame."""
        return self._bytes[frame.end : frame.last]

    def ask(self, request: int, frame: bytes, *, about: str) -> api.BaseCommand:
        """Send a request and wait for its answer; messages that arrive meanwhile are dropped.

        :param about: the topic, for an error.
        :raises FleetError: the type depends on the broker's error code.
        """
        self.send(frame)
        while True:
            answer = self._answer()
            if answer.error.request_id == request:
                raise self.refusal(answer.error.error, answer.error.message, about)
            if answer.type == api.TOPIC_MIGRATED:
                raise self.moved(about)
            if request in (answer.success.request_id, answer.lookup_response.request_id):
                return answer

    def refusal(self, code: int, message: bytes, about: str) -> FleetError:
        """The error for a broker's code; an unknown code is `Unavailable`."""
        return refused(code, message, about, cluster=self._cluster.name, address=str(self.address))

    def moved(self, topic: str) -> Conflict:
        """The error for a migrated topic; the redirect is never followed, because this cluster's topic is meant."""
        return Conflict(
            f"{topic} was moved to another cluster, and {self._cluster.name} no longer has it loaded: it cannot be "
            f"read.",
            cluster=self._cluster.name,
        )

    def _open(self) -> socket.socket:
        plain = socket.create_connection((self.address.host, self.address.port), self._timeout_seconds)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not self.address.tls:
                return plain
            return tls_context(self._cluster).wrap_socket(plain, server_hostname=self.address.host)
        except BaseException:
            plain.close()
            raise

    def _use_kernel_timeouts(self) -> None:
        """Python's timeouts cost two more system calls for each read; with TLS, Python would retry after a kernel
        timeout.
        """
        if not self.address.tls:
            self._socket.settimeout(None)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(self._timeout_seconds))

    def _wait_at_most(self, seconds: float) -> None:
        if self.address.tls:
            self._socket.settimeout(seconds)
        elif seconds != self._wait_seconds:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(seconds))
        self._wait_seconds = seconds

    def _introduce(self, broker_url: str | None) -> None:
        method, credentials = credentials_of(self._cluster)
        self.send(wire.connect(method=method, credentials=credentials, broker_url=broker_url))
        while (answer := self._answer()).type != api.CONNECTED:
            if answer.type == api.ERROR:
                raise self.refusal(answer.error.error, answer.error.message, "The service")

    def _answer(self) -> api.BaseCommand:
        """The next command that is not a message."""
        while received := self.next_frame(self._timeout_seconds):
            if received.kind != api.MESSAGE:
                return self.command(received)
        raise self._lost(f"did not answer for {self._timeout_seconds:g} s")

    def _serve(self, frame: Frame) -> None:
        """Answer a ping or an authentication challenge."""
        if frame.kind == api.PING:
            self.send(wire.PONG)
        elif frame.kind == api.AUTH_CHALLENGE:
            method, credentials = credentials_of(self._cluster)
            self.send(wire.auth_response(method=method or "none", credentials=credentials or b""))

    def _receive(self, wait_seconds: float) -> bool:
        if self._begin == self._end:
            self._begin = self._end = 0
        elif self._begin and len(self.buffer) - self._end < LEAST_ROOM_BYTES:
            self._make_room(0)
        try:
            self._wait_at_most(wait_seconds)
            received = self._socket.recv_into(self._view[self._end :])
        except (TimeoutError, BlockingIOError):  # a kernel timeout is a BlockingIOError
            return False
        except OSError as error:
            raise self._lost(f"broke the connection: {error}") from error
        if not received:
            raise self._lost("closed the connection")
        self._end += received
        return True

    def _make_room(self, size: int) -> None:
        """Make room for a frame of `size` bytes by moving the unread bytes to the front."""
        rest = self.buffer[self._begin : self._end]
        if size > len(self.buffer):
            self.buffer = bytearray(size + BUFFER_BYTES)
            self._view = memoryview(self.buffer)
            self._bytes = np.frombuffer(self.buffer, np.uint8)
        self.buffer[: len(rest)] = rest
        self._begin, self._end = 0, len(rest)

    def _lost(self, what: str) -> ConnectionLost:
        return ConnectionLost(f"The broker {self.address} of {self._cluster.name} {what}.", cluster=self._cluster.name)


def _timeval(seconds: float) -> bytes:
    return struct.pack("@ll", int(seconds), int(seconds % 1 * 1_000_000))


_OF_THE_CONNECTION = frozenset({api.PING, api.PONG, api.AUTH_CHALLENGE})


_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The address of one broker."""

    host: str
    port: int
    tls: bool

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read `pulsar://host:port` or `pulsar+ssl://host:port`."""
        parts = urlsplit(url)
        try:
            port = parts.port or _PORTS.get(parts.scheme)
        except ValueError:
            port = None
        if parts.scheme not in _PORTS or not port or not parts.hostname:
            raise InvalidRequest(f"The broker address {url!r} is not usable: it must be pulsar://host:port.")
        return cls(parts.hostname, port, parts.scheme == "pulsar+ssl")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'pulsar+ssl' if self.tls else 'pulsar'}://{host}:{self.port}"


def service_addresses(url: str) -> list[BrokerAddress]:
    """The addresses of a service URL, which may have several hosts: `pulsar://blue-1:6650,blue-2:6650`."""
    scheme, _, hosts = url.partition("://")
    return [BrokerAddress.parse(f"{scheme}://{host}") for host in hosts.rstrip("/").split(",")]


def credentials_of(cluster: ClusterConnection) -> tuple[str | None, bytes | None]:
    """Authentication method and data, read at each use; TLS itself presents a certificate. **Holds secrets.**

    A connection may have both: then the token names the role, and the certificate opens the connection.
    """
    if token := cluster.read_token():
        return "token", token.encode()
    if cluster.user:
        return "basic", f"{cluster.user}:{cluster.password}".encode()
    return ("tls", None) if cluster.tls_certificate_file else (None, None)


_BY_CODE: dict[int, tuple[type[FleetError], str]] = {
    api.AUTHENTICATION: (Unauthenticated, "cannot be read, because our credentials are not accepted"),
    api.AUTHORIZATION: (NotAllowed, "may not be read by this role: grant it consume"),
    api.TOPIC_NOT_FOUND: (NotFound, "does not exist"),
    api.TOPIC_TERMINATED: (Conflict, "is terminated or was migrated"),
}


_BY_POLICY: dict[str, str] = {
    "sub type!": "its subscriptionTypesEnabled does not permit this type of subscription: permit it until all is read",
    "maximum number of subscriptions": "its maxSubscriptionsPerTopic is reached: raise it until all is read",
    "Topic reached max consumers": "its maxConsumersPerTopic is reached: raise it until all is read",
}
"""Part of the broker's message → the policy that refuses a subscription, and what to do: a retry is refused too."""


def refused(code: int, message: bytes, about: str, *, cluster: str, address: str) -> FleetError:
    """The error for a broker's code and message; an unknown code is `Unavailable`."""
    raised, reason = _BY_CODE.get(code, (Unavailable, "could not be read"))
    if policy := next((text for part, text in _BY_POLICY.items() if part.encode() in message), ""):
        raised, reason = InvalidRequest, f"cannot be read, because {policy}. It was refused"
    detail = " ".join(message.decode(errors="replace").split())[:300]
    return raised(f"{about} {reason} on {cluster} ({address}): {detail}.", cluster=cluster)
