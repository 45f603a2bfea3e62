"""Runs one command and never lets it outlive its owner. A script of its own: standard library only, started by path.

A JVM survives the death of the process that started it. This guard runs between the two: it reads from a pipe whose
write end only the owner has, so the kernel closes the pipe when the owner ends for any reason. A child that the owner
forked may keep the pipe open, so the guard also checks the owner's process id.

SIGUSR1 starts the command again after it ended, which lets a process that is not the owner restart a broker without
becoming its parent. SIGUSR2 releases the command: from then on it outlives the owner.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

ORPHAN_CHECK_SECONDS = 1.0


class Guard:
    """One command under guard.

    :param command: what to run.
    :param owner: process id whose death ends the command.
    :param pid_file: the command's process id while it runs; empty after it ended, absent before it started.
    """

    def __init__(self, *, command: list[str], owner: int, pid_file: Path) -> None:
        self._command = command
        self._owner: int | None = owner
        self._pid_file = pid_file
        self._child: subprocess.Popen[bytes] | None = None
        self._ended = False
        self._start_wanted = True

    def run(self, *, once: bool) -> int:
        """Serve until the owner ends, a signal ends the guard, or, if `once`, the command ends by itself."""
        wake = self._listen_to_signals()
        while not self._ended:
            if self._start_wanted:
                self._start()
            self._wait(wake)
            if self._owner is not None and os.getppid() != self._owner:
                break
            if (code := self._reap()) is not None and once:
                return code
        self._kill()
        return 0

    def _listen_to_signals(self) -> int:
        wake, ring = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(ring, False)
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGUSR1, self._on_start)
        signal.signal(signal.SIGUSR2, self._on_release)
        for ending in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(ending, self._on_end)
        return wake

    def _on_start(self, _signal: int, _frame: FrameType | None) -> None:
        self._start_wanted = True

    def _on_release(self, _signal: int, _frame: FrameType | None) -> None:
        self._owner = None

    def _on_end(self, _signal: int, _frame: FrameType | None) -> None:
        self._ended = True

    def _start(self) -> None:
        self._reap()
        self._start_wanted = False
        if self._child is None:
            # A process group of its own: a command that starts others is killed with all of them.
            self._child = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, process_group=0)
            self._publish(str(self._child.pid))

    def _wait(self, wake: int) -> None:
        watched = [wake] if self._owner is None else [wake, sys.stdin.fileno()]
        ready, _, _ = select.select(watched, [], [], ORPHAN_CHECK_SECONDS)
        if wake in ready:
            os.read(wake, 512)
        # The owner may release and end at once: then the signal came first, and the closed pipe means nothing.
        if sys.stdin.fileno() in ready and self._owner is not None:
            self._ended = True

    def _reap(self) -> int | None:
        """Return the exit code if the command has ended since the last call."""
        if self._child is None or self._child.poll() is None:
            return None
        code = self._child.returncode
        self._child = None
        self._publish("")
        return code

    def _publish(self, text: str) -> None:
        written = self._pid_file.with_suffix(".new")
        written.write_text(text)
        written.replace(self._pid_file)

    def _kill(self) -> None:
        if self._child is not None:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()
            self._reap()


def main() -> int:
    """Parse `--owner PID [--once] --pid-file FILE COMMAND...` and guard the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--owner", type=int, required=True)
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--pid-file", type=Path, required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    return Guard(command=options.command, owner=options.owner, pid_file=options.pid_file).run(once=options.once)


if __name__ == "__main__":
    sys.exit(main())
