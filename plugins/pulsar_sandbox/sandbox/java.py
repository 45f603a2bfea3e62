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
INSTALLED = (
    (Path("/usr/lib/jvm"), "*/bin/java"),
    (Path("/Library/Java/JavaVirtualMachines"), "*/Contents/Home/bin/java"),
)
"""Where distributions and installers put each Java beside the others: a folder, and the programs in it."""
_INSTALL_JAVA = (
    "install one: 'sudo apt-get install openjdk-{0}-jre-headless' (Debian), 'brew install openjdk@{0}' (macOS)"
)
_INSTALL_MAVEN = "install it: 'sudo apt-get install maven' (Debian), 'brew install maven' (macOS)"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs Pulsar."""

    path: str
    major: int


def find_java(minimum: int = MINIMUM) -> Java:
    """Find a Java that is late enough: that of JAVA_HOME or on PATH, else the newest that is installed beside it.

    :raises PreconditionFailed: there is none; the message has the command that installs one.
    """
    home = os.environ.get("JAVA_HOME")
    chosen = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if chosen and (major := _major(chosen)) and major >= minimum:
        return Java(chosen, major)
    paths = [str(path) for folder, pattern in INSTALLED for path in sorted(folder.glob(pattern))]
    others = [Java(path, _major(path) or 0) for path in paths]
    if late := [java for java in others if java.major >= minimum]:
        return max(late, key=lambda java: java.major)
    install = _INSTALL_JAVA.format(minimum)
    if chosen is None:
        where = f"in JAVA_HOME {home!r}" if home else "on PATH"
        raise PreconditionFailed(f"No Java {where}, and Pulsar needs Java {minimum} or later; {install}.")
    version = (_shown(chosen).splitlines() or ["nothing"])[0]
    raise PreconditionFailed(f"{chosen!r} answers {version!r}, and Pulsar needs Java {minimum} or later; {install}.")


def _major(path: str) -> int | None:
    major = re.search(r'version "(\d+)', _shown(path))
    return int(major[1]) if major else None


def _shown(path: str) -> str:
    # macOS has a /usr/bin/java that only says that there is none.
    return subprocess.run([path, "-version"], capture_output=True, text=True, check=False).stderr


def find_maven() -> str:
    """Find Maven on PATH. Refuses with the install command."""
    path = shutil.which("mvn")
    if path is None:
        raise PreconditionFailed(f"No Maven (mvn) on PATH, and it fetches Pulsar's jars; {_INSTALL_MAVEN}.")
    return path
