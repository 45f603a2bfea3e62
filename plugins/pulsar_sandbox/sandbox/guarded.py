"""Processes under guard: started here, watched by `guard.py`, found again by any process that knows the folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from pulsar_fleet.cluster.errors import PreconditionFailed, Unavailable

GUARD = Path(__file__).with_name("guard.py")
# Long enough for a broker to close its ledgers; what it did not write by then, its journal has.
STOP_SECONDS = 10.0
KILL_SECONDS = 10.0
LOG_TAIL_BYTES = 20_000


def guard_command(pid_file: Path, command: list[str], *, once: bool = False) -> list[str]:
    """Build the command that runs `command` under guard, owned by this process."""
    single = ["--once"] if once else []
    # -I -S: no site-packages, so a guard costs 10 MB and starts in 20 ms.
    return [
        sys.executable,
        "-I",
        "-S",
        str(GUARD),
        "--owner",
        str(os.getpid()),
        *single,
        "--pid-file",
        str(pid_file),
        *command,
    ]


class GuardedProcess:
    """One JVM of a sandbox, in a folder of its own. The folder is all that is needed to find it again.

    :param folder: working directory, with the process ids, the log and the data.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "pulsar.log"
        self._console = folder / "console.log"
        self._guard_file = folder / "guard.pid"
        self._pid_file = folder / "jvm.pid"
        self._handle: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the JVM, None while it does not run."""
        if self._guard() is None:
            return None
        try:
            return int(self._pid_file.read_text() or 0) or None
        except FileNotFoundError:
            return None

    @property
    def guarded(self) -> bool:
        """Whether the guard runs; it does so from start to stop, with or without the JVM."""
        return self._guard() is not None

    @property
    def memory(self) -> int:
        """Resident memory in bytes; 0 while the JVM does not run."""
        try:
            return 0 if (pid := self.pid) is None else int(psutil.Process(pid).memory_info().rss)
        except psutil.NoSuchProcess:
            return 0

    @property
    def listening(self) -> set[int]:
        """The TCP ports on which this JVM listens."""
        try:
            sockets = [] if (pid := self.pid) is None else psutil.Process(pid).net_connections(kind="tcp")
        except psutil.NoSuchProcess:
            return set()
        return {socket.laddr.port for socket in sockets if socket.status == psutil.CONN_LISTEN}

    def start(self, command: list[str]) -> None:
        """Start guard and JVM; both die with this process, whatever it dies of, unless released."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._pid_file.unlink(missing_ok=True)
        self.log.unlink(missing_ok=True)
        with self._console.open("wb") as console:
            self._handle = subprocess.Popen(
                guard_command(self._pid_file.resolve(), command),
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=console,
                stderr=console,
                # A session of its own: Ctrl-C and a closed terminal reach the owner only, which then decides.
                start_new_session=True,
            )
        self._guard_file.write_text(str(self._handle.pid))
        self._until(self._pid_file.exists, KILL_SECONDS, "start")

    def release(self) -> None:
        """Let the JVM outlive this process; `stop` ends it, from any process."""
        if (guard := self._guard()) is not None:
            guard.send_signal(signal.SIGUSR2)

    def start_again(self) -> None:
        """Let the guard start the JVM again after it ended; does nothing while it runs."""
        guard = self._guard()
        if guard is None:
            raise PreconditionFailed(
                f"Nothing guards {str(self.folder)!r}: its sandbox is stopped; start the sandbox again."
            )
        if self.pid is None:
            # Absent until the guard has started it: a JVM that ends at once is seen as started and ended.
            self._pid_file.unlink(missing_ok=True)
            guard.send_signal(signal.SIGUSR1)
            self._until(self._pid_file.exists, KILL_SECONDS, "start")

    def kill(self) -> None:
        """End the JVM with kill -9, as a crash would. A second call does nothing."""
        self._send(signal.SIGKILL)
        self._until(lambda: self.pid is None, KILL_SECONDS, "die")

    def end(self) -> None:
        """End the JVM in good order, by force after 10 s; the guard stays and can start it again."""
        self._send(signal.SIGTERM)
        try:
            self._until(lambda: self.pid is None, STOP_SECONDS, "end")
        except Unavailable:
            self.kill()

    def stop(self) -> None:
        """End the guard, which takes the JVM with it at once. A second call does nothing."""
        if (guard := self._guard()) is not None:
            guard.terminate()
            if self._handle is not None:
                self._handle.wait()
            self._until(lambda: self._guard() is None, KILL_SECONDS, "end")
        if self._handle is not None and self._handle.stdin is not None:
            self._handle.stdin.close()
        self._guard_file.unlink(missing_ok=True)

    def last_words(self, lines: int = 15) -> str:
        """Return the end of what it wrote, without stack frames: of the log, or of the console if it has no log."""
        for file in (self.log, self._console):
            if file.exists() and (text := _tail(file).strip()):
                messages = [line for line in text.splitlines() if not line.startswith(("\tat ", "\t... "))]
                return "\n".join(messages[-lines:])
        return "it wrote nothing"

    def _send(self, which: signal.Signals) -> None:
        if (pid := self.pid) is not None:
            try:
                os.kill(pid, which)
            except ProcessLookupError:
                return

    def _guard(self) -> psutil.Process | None:
        """Find the guard by its process id and its command line, since process ids are reused."""
        try:
            guard = psutil.Process(int(self._guard_file.read_text()))
            alive = guard.status() != psutil.STATUS_ZOMBIE and str(self._pid_file.resolve()) in guard.cmdline()
        except (FileNotFoundError, psutil.NoSuchProcess, psutil.ZombieProcess):
            return None
        return guard if alive else None

    def _until(self, holds: Callable[[], bool], seconds: float, verb: str) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                raise Unavailable(f"The process in {str(self.folder)!r} did not {verb} within {seconds:g} s.")
            time.sleep(0.02)


def _tail(file: Path) -> str:
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - LOG_TAIL_BYTES))
        return stream.read().decode(errors="replace")
