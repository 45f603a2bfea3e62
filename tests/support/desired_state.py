"""Commands about desired state in files, from a terminal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from pulsar_fleet.cluster.connection import ClusterConnection

DONE, DIFFERENT, REFUSED = 0, 3, 4


class Shell:
    """Runs commands in a folder, on clusters by their URLs."""

    def __init__(self, folder: Path, tenant: str, *clusters: ClusterConnection) -> None:
        self.folder, self.tenant = folder, tenant
        self.clusters = [connection.admin_url for connection in clusters]

    def run(self, *words: str) -> tuple[int, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "pulsar_fleet.cli", *words, "--select", self.tenant, "--json"],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr

    def export(self) -> Any:
        state, output = self.run("export", self.clusters[0], "fleet")
        assert state == DONE, output
        return output

    def reconcile(self, *words: str) -> tuple[int, Any]:
        return self.run("reconcile", *self.clusters, "--authority", "file:fleet", *words)
