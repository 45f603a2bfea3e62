"""An agent for a broker's JVM, compiled here, by which its clock is wrong."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

from pulsar_sandbox.sandbox.java import find_java

_SOURCE = Path(__file__).with_name("ShiftedClock.java")
_MANIFEST = "Premain-Class: ShiftedClock\nCan-Retransform-Classes: true\n"


def shifted_clock(folder: Path, seconds: float) -> str:
    """The option for a JVM whose clock is ahead by so many seconds."""
    javac = Path(find_java().path).resolve().with_name("javac")
    subprocess.run([javac, "--release", "17", "-d", folder, _SOURCE], check=True, capture_output=True)
    jar = folder / "shifted-clock.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", _MANIFEST)
        archive.write(folder / "ShiftedClock.class", "ShiftedClock.class")
    return f"-javaagent:{jar}={jar},{int(seconds * 1000)}"
