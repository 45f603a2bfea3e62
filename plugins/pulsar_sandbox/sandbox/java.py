"""Java and Maven on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pulsar_fleet.cluster.errors import PreconditionFailed

MINIMUM = 17
_INSTALL_JAVA = (
    "install one: 'sudo apt-get install openjdk-17-jre-headless' (Debian), 'brew install openjdk@17' (macOS)"
)
_INSTALL_MAVEN = "install it: 'sudo apt-get install maven' (Debian), 'brew install maven' (macOS)"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs Pulsar."""

    path: str
    major: int


def find_java() -> Java:
    """Find Java 17 or later: of JAVA_HOME if that is set, else the one on PATH. Refuses with the install command."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if path is None:
        where = f"in JAVA_HOME {home!r}" if home else "on PATH"
        raise PreconditionFailed(f"No Java {where}, and Pulsar needs Java {MINIMUM} or later; {_INSTALL_JAVA}.")
    # macOS has a /usr/bin/java that only says that there is none.
    shown = subprocess.run([path, "-version"], capture_output=True, text=True, check=False).stderr
    major = re.search(r'version "(\d+)', shown)
    if major is None or int(major[1]) < MINIMUM:
        version = shown.splitlines()[0] if shown else "nothing"
        raise PreconditionFailed(
            f"{path!r} answers {version!r}, and Pulsar needs Java {MINIMUM} or later; {_INSTALL_JAVA}."
        )
    return Java(path, int(major[1]))


def find_maven() -> str:
    """Find Maven on PATH. Refuses with the install command."""
    path = shutil.which("mvn")
    if path is None:
        raise PreconditionFailed(f"No Maven (mvn) on PATH, and it fetches Pulsar's jars; {_INSTALL_MAVEN}.")
    return path
