"""What Pulsar's own classes declare, by `javap` on the jars of a version."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from pulsar_sandbox.sandbox.jars import NEEDS_JAVA, jars_for
from pulsar_sandbox.sandbox.java import MINIMUM, find_java

VERSIONS = (
    "4.2.4",
    pytest.param("4.0.7", marks=pytest.mark.long),
    pytest.param("3.0.7", marks=pytest.mark.long),
    pytest.param("5.0.1", marks=pytest.mark.long),
)
"""Those of which every policy and route is in our catalogues."""
ANNOTATED = "RuntimeVisibleAnnotations:"
_RESOURCE = re.compile(r"org/apache/pulsar/broker/admin/(?:v2|v3|impl)/\w+\.class")
_DECLARED = re.compile(r"class ([\w.]+)(?:<.*?>)?(?: extends ([\w.]+))?")
_PATH = re.compile(r"ws\.rs\.Path\(\s*value=\"/?([^\"]*)\"")
_PARAMETER = re.compile(r"\{[^}]*\}")


def javap(version: str, *arguments: str) -> str:
    """What `javap -p` prints for these arguments, with the jars of a Pulsar version."""
    jars = jars_for(version)
    path = ":".join(str(jar) for jar in jars.glob("pulsar-*.jar"))
    program = Path(find_java(NEEDS_JAVA.get(version, MINIMUM)).path).with_name("javap")
    command = [str(program), "-p", "-cp", path, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def read_routes(version: str) -> set[str]:
    """Every route of the admin API that answers GET, such as `namespaces/*/*/retention`."""
    (broker,) = jars_for(version).glob("pulsar-broker-[0-9]*.jar")
    with ZipFile(broker) as jar:
        names = [name for name in jar.namelist() if _RESOURCE.fullmatch(name)]
    shown = javap(version, "-v", *(name.removesuffix(".class").replace("/", ".") for name in names))
    parents: dict[str, str | None] = {}
    roots: dict[str, str] = {}
    own: dict[str, set[str]] = {}
    for text in shown.split("Compiled from")[1:]:
        if (declared := _DECLARED.search(text)) is None:
            continue
        name = declared[1]
        parents[name] = declared[2]
        own[name] = set(_gets(text))
        if root := _PATH.search(text.rpartition("SourceFile:")[2]):
            roots[name] = root[1]
    return {
        _PARAMETER.sub("*", "/".join(part for part in (root, route) if part))
        for name, root in roots.items()
        for route in _inherited(name, parents, own)
    }


def _gets(text: str) -> Iterator[str]:
    methods = text.rpartition("SourceFile:")[0].split(ANNOTATED)[1:]
    for method in (block.partition("RuntimeVisibleParameterAnnotations")[0] for block in methods):
        if re.search(r"ws\.rs\.GET\b", method):
            path = _PATH.search(method)
            yield path[1] if path else ""


def _inherited(name: str, parents: dict[str, str | None], own: dict[str, set[str]]) -> set[str]:
    routes: set[str] = set()
    current: str | None = name
    while current in own:
        routes |= own[current]
        current = parents[current]
    return routes
