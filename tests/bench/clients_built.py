"""Clients of Pulsar in several languages and versions, fetched and built once, kept beside the sandbox's jars."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pulsar

from pulsar_sandbox.sandbox.folders import jar_cache
from pulsar_sandbox.sandbox.java import find_java, find_maven

SOURCES = Path(__file__).parent / "clients"
PROGRAM = SOURCES / "Applications.java"
JAVA = ("4.2.4", "4.0.4", "3.3.9", "3.0.7")
GO_SECONDS = 1200
"""The first build takes two minutes of CPU time."""


def commands() -> Mapping[str, list[str]]:
    """Client → the command of its applications; without Go on PATH there is none for it."""
    by_client = {f"Java {version}": java_command(_jars(version)) for version in JAVA}
    by_client[f"Python {pulsar.__version__}"] = [sys.executable, str(SOURCES / "applications.py")]
    if shutil.which("go"):
        by_client[f"Go {_go_version()}"] = [str(_go())]
    return by_client


def java_command(jars: Path) -> list[str]:
    """The command of the applications in Java, with the client of this folder."""
    classes = jar_cache().parent / "applications" / f"classes-{jars.name}"
    if not (classes / "Applications.class").exists() or _older(classes / "Applications.class", PROGRAM):
        classes.mkdir(parents=True, exist_ok=True)
        compiler = Path(find_java().path).with_name("javac")
        command = [str(compiler), "-proc:none", "-cp", f"{jars}/*", "-d", str(classes), str(PROGRAM)]
        subprocess.run(command, check=True, timeout=120)
    options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [find_java().path, *options, "-cp", f"{classes}:{jars}/*", PROGRAM.stem]


def _jars(version: str) -> Path:
    folder = jar_cache().parent / "applications" / f"client-{version}"
    if not folder.exists():
        partial = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        command = [find_maven(), "-q", "-B", "-f", str(SOURCES / "pom.xml"), f"-Dpulsar.version={version}"]
        command += ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={partial}"]
        subprocess.run(command, check=True, timeout=600)
        partial.rename(folder)
    return folder


def _go() -> Path:
    program = jar_cache().parent / "applications" / "go"
    program.parent.mkdir(parents=True, exist_ok=True)
    if not program.exists() or _older(program, SOURCES / "go" / "main.go"):
        command = ["go", "build", "-o", str(program), "."]
        subprocess.run(command, cwd=SOURCES / "go", check=True, timeout=GO_SECONDS)
    return program


def _go_version() -> str:
    match = re.search(r"pulsar-client-go v(\S+)", (SOURCES / "go" / "go.mod").read_text())
    assert match
    return match[1]


def _older(target: Path, source: Path) -> bool:
    return target.stat().st_mtime < source.stat().st_mtime
