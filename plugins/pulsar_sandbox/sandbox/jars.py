"""Pulsar's jars, fetched once per version with Maven and kept in a folder."""

from __future__ import annotations

import logging
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_sandbox.sandbox.folders import jar_cache, locked
from pulsar_sandbox.sandbox.guarded import guard_command
from pulsar_sandbox.sandbox.java import find_maven

_log = logging.getLogger(__name__)

DEFAULT_VERSION = "4.2.4"
# Later ones read the POM of what they copy, and its parent.
_COPY_BOOKKEEPER = "org.apache.maven.plugins:maven-dependency-plugin:2.10:copy@bookkeeper"
# Versions whose dependencies are all on Maven Central and that were observed to start → what Maven needs for them.
KNOWN_VERSIONS: Mapping[str, tuple[str, ...]] = {
    DEFAULT_VERSION: (),
    "4.0.7": (),
    "3.0.7": ("-Dslf4j.binding=log4j-slf4j-impl",),
    # Only the jars of its BookKeeper are copied: their parent POM is not in every mirror of Maven Central.
    "5.0.1": ("-Ppulsar-5.0.1", "-DexcludeGroupIds=${bookkeeper.groups}", _COPY_BOOKKEEPER),
}
SINGLE_BROKER = frozenset({"5.0.1"})
"""Versions whose starter runs no ZooKeeper."""
NEEDS_JAVA: Mapping[str, int] = {"5.0.1": 21}
"""Versions whose classes need a later Java than the others."""
POM = Path(__file__).with_name("pom.xml")
FILES_PER_REPORT = 50

Progress = Callable[[str], None]


def log_progress(message: str) -> None:
    """Report progress to the log: the default where the caller gives no other way."""
    _log.info("%s", message)


def check_version(version: str) -> None:
    """Reject a version that the sandbox cannot start."""
    if version not in KNOWN_VERSIONS:
        raise InvalidRequest(
            f"Pulsar version {version!r} is not one that the sandbox can start; use {' or '.join(KNOWN_VERSIONS)}."
        )


def jars_for(version: str, progress: Progress = log_progress) -> Path:
    """Return the folder with all jars of a Pulsar version, fetching about 240 MB the first time.

    The folder appears only when it is whole: a cut download leaves nothing that a later call takes for complete.
    Several processes may ask at once; one fetches, the others wait.
    """
    check_version(version)
    folder = jar_cache() / version
    if not folder.exists():
        with locked(folder.with_name(f"{version}.lock")):
            if not folder.exists():
                _fetch(version, folder, progress)
    return folder


def _fetch(version: str, folder: Path, progress: Progress) -> None:
    maven = find_maven()
    partial = folder.with_name(f"{version}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    progress(f"Pulsar {version}: fetching its jars with Maven, about 240 MB, once")
    command = [maven, "-B", "-f", str(POM), f"-Dpulsar.version={version}"]
    command += [*KNOWN_VERSIONS[version], "dependency:copy-dependencies"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={partial}"]
    code, last_lines = _run(command, folder.with_name(f"{version}.maven.pid"), progress, f"Pulsar {version}")
    if code != 0:
        shutil.rmtree(partial, ignore_errors=True)
        raise PreconditionFailed(
            f"Maven could not fetch the jars of Pulsar {version} (exit code {code}); is Maven Central reachable? "
            f"It said:\n{last_lines}"
        )
    partial.rename(folder)
    progress(f"Pulsar {version}: {len(list(folder.glob('*.jar')))} jars are in {folder}")


def _run(command: list[str], pid_file: Path, progress: Progress, what: str) -> tuple[int, str]:
    """Run Maven under guard, so that it ends with this process; return its exit code and what it said last."""
    guarded = guard_command(pid_file, command, once=True)
    tail: deque[str] = deque(maxlen=12)
    fetched = 0
    with subprocess.Popen(
        guarded,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as maven:
        try:
            for line in maven.stdout or ():
                tail.append(line.rstrip())
                fetched += "Downloaded from" in line
                if "Downloaded from" in line and fetched % FILES_PER_REPORT == 0:
                    progress(f"{what}: {fetched} files fetched")
        except BaseException:
            maven.terminate()
            raise
    pid_file.unlink(missing_ok=True)
    return maven.returncode, "\n".join(line for line in tail if "ERROR" in line) or "\n".join(tail)
