"""Start and stop traffic in a process of its own, which ends with its owner."""

from __future__ import annotations

import base64
import logging
import os
import pickle
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_sandbox.sandbox.guarded import guard_command
from pulsar_sandbox.workload.live import RESTART_SECONDS
from pulsar_sandbox.workload.traffic.journal import Counters, read_tally
from pulsar_sandbox.workload.traffic.tally import Tally

log = logging.getLogger(__name__)

_MODULE = "pulsar_sandbox.workload.traffic.operator"
CONNECTION_VARIABLE = "PULSAR_SANDBOX_CONNECTION_SECRET"
"""The pickled connection of the applications, in Base64: in a variable, since it may have a token."""
_POLL_SECONDS = 0.1
_START_SECONDS = 60.0
_STOP_SECONDS = 120.0


class Traffic:
    """A running traffic process; obtain one by `start`, and use it with `with` or call `stop`."""

    def __init__(self, *, folder: Path, guard: subprocess.Popen[bytes], pid_file: Path) -> None:
        self.folder = folder
        self._guard = guard
        self._pid_file = pid_file

    @classmethod
    def start(
        cls,
        connection: ClusterConnection,
        *,
        namespace: NamespaceName | str,
        folder: Path | str,
        rate: float = 50.0,
        restart_seconds: float = RESTART_SECONDS,
    ) -> Traffic:
        """Start the applications and return when all are connected. They end with this process.

        :param connection: of the first cluster; the clients follow its redirects, and use its credentials there too.
        :param namespace: the live namespace of an estate.
        :param folder: for journals, counters and log; must be new or empty.
        :param rate: messages per second on each of the two topics.
        :param restart_seconds: seconds after which an application that is stuck is restarted, as its operator would.
        :raises InvalidRequest: the folder is not empty.
        :raises PreconditionFailed: an application could not connect; the message ends with the log's last line.
        """
        place = Path(folder).absolute()
        if place.exists() and any(place.iterdir()):
            raise InvalidRequest(
                f"The traffic's folder {str(place)!r} is not empty: give each run a folder of its own."
            )
        place.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", _MODULE, "--namespace", str(namespace), "--journal", str(place)]
        command += ["--rate", str(rate), "--restart-seconds", str(restart_seconds)]
        pid_file = place / "traffic.pid"
        with (place / "traffic.log").open("wb") as output:
            guard = subprocess.Popen(
                guard_command(pid_file, command, once=True),
                stdin=subprocess.PIPE,
                env={**os.environ, CONNECTION_VARIABLE: base64.b64encode(pickle.dumps(connection)).decode()},
                stdout=output,
                stderr=output,
                # Ctrl-C must reach the owner only, which then stops the traffic in good order.
                start_new_session=True,
            )
        traffic = cls(folder=place, guard=guard, pid_file=pid_file)
        traffic._wait_until_connected()
        return traffic

    @property
    def pid(self) -> int | None:
        """Process id of the traffic, None when it has ended."""
        if self._guard.poll() is not None:
            return None
        with suppress(FileNotFoundError, ValueError):
            return int(self._pid_file.read_text())
        return None

    def peek(self) -> Counters | None:
        """What it has counted so far; None before it is connected."""
        return Counters.read(self.folder)

    def stop(self) -> Tally:
        """End it in good order and count: producers stop, consumers catch up. A second call only counts again.

        After a traffic that was killed, or hangs for more than two minutes, the tally is not `finished`.
        """
        if (pid := self.pid) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        try:
            self._guard.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            log.warning("the traffic in %s hangs and is killed", self.folder)
            self.kill()
        self._close()
        return read_tally(self.folder)

    def kill(self) -> None:
        """End it at once, as kill -9 does. A second call does nothing."""
        # The guard answers SIGTERM by killing what it guards.
        self._guard.terminate()
        self._guard.wait()
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()

    def _wait_until_connected(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while self.peek() is None:
            if self._guard.poll() is not None or time.monotonic() > deadline:
                self.kill()
                words = (self.folder / "traffic.log").read_text(errors="replace").strip().splitlines()
                raise PreconditionFailed(
                    f"The traffic in {str(self.folder)!r} did not connect: {words[-1] if words else 'it wrote nothing'}"
                )
            time.sleep(_POLL_SECONDS)

    def _close(self) -> None:
        if self._guard.stdin is not None:
            self._guard.stdin.close()
