"""Commands as a shell starts them: on and off a terminal, interrupted and killed."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.support.leaks import leaking

from pulsar_fleet.cluster.connection import ClusterConnection

CANARY = "canary-2f7d01c9"


@dataclass(frozen=True)
class Said:
    """What a command said, and the state with which it exited."""

    state: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


class Shell:
    """Runs commands between two clusters.

    :param sides: the clusters as commands take them.
    :param secrets: what no command may say.
    """

    def __init__(
        self, folder: Path, sides: tuple[str, str], environment: Mapping[str, str], secrets: Sequence[str] = (CANARY,)
    ) -> None:
        self.folder = folder
        self.sides = sides
        self.environment = {**os.environ, **environment}
        self._secrets = secrets

    @classmethod
    def between(cls, folder: Path, blue: ClusterConnection, green: ClusterConnection) -> Self:
        """Blue by its URL, green by an Airflow connection; open clusters accept any token."""
        named = {"conn_type": "pulsar", "host": green.admin_url, "extra": {"token": CANARY}}
        environment = {"PULSAR_FLEET_SOURCE_TOKEN_SECRET": CANARY, "AIRFLOW_CONN_PULSAR_GREEN": json.dumps(named)}
        return cls(folder, (blue.admin_url, "pulsar_green"), environment)

    def command(self, *words: object) -> list[str]:
        return [sys.executable, "-m", "pulsar_fleet.cli", *map(str, words)]

    def run(self, *words: object) -> Said:
        done = subprocess.run(
            self.command(*words),
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert "Traceback" not in done.stderr
        assert leaking(iter([("the output", done.stdout + done.stderr)]), self._secrets) == []
        return Said(done.returncode, done.stdout, done.stderr)

    def undo(self, line: str) -> None:
        """Run a printed `undo RUN`, with the permission of every change that asks for one."""
        completed = self.run(*line.split(), "--yes")
        allowed = [part for id_ in re.findall(r"id (\w{12}):", completed.out) for part in ("--allow", id_)]
        if completed.state:
            assert allowed, completed.out + completed.err
            completed = self.run(*line.split(), "--yes", *allowed)
        assert completed.state == 0, completed.out + completed.err

    def at_once(self, *commands: tuple[object, ...]) -> list[Said]:
        """Commands that do not depend on each other."""
        with ThreadPoolExecutor() as pool:
            return list(pool.map(lambda words: self.run(*words), commands))

    def interrupted(self, *words: object, after: str) -> Said:
        """Ctrl-C as soon as the command says `after` on stderr."""
        with self.begun(*words) as process:
            assert process.stderr is not None
            assert any(after in line for line in process.stderr)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate()
        return Said(process.returncode, out, err)

    def begun(self, *words: object) -> subprocess.Popen[str]:
        """A command that runs until its caller ends it."""
        return subprocess.Popen(
            self.command(*words),
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def killed(self, *words: object, after: str) -> str:
        """Killed as soon as the command says `after` on stderr; returns what stderr had until then."""
        said = ""
        with self.begun(*words) as process:
            assert process.stderr is not None
            while after not in said and (line := process.stderr.readline()):
                said += line
            process.kill()
        assert after in said
        return said

    def typed(self, answer: str, *words: object) -> tuple[int, str]:
        """On a terminal, with an answer typed in advance; returns the exit state and what was shown."""
        shown, terminal = pty.openpty()
        with subprocess.Popen(
            self.command(*words),
            env=self.environment,
            cwd=self.folder,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
        ) as process:
            os.close(terminal)
            os.write(shown, f"{answer}\n".encode())
            text = b""
            try:
                while chunk := os.read(shown, 4096):
                    text += chunk
            except OSError:
                # Linux says so when the last process has left the terminal.
                pass
        os.close(shown)
        return process.returncode, text.decode()
