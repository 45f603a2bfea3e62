"""Java, Maven and the jar cache, with scripts that answer as the real ones do when something is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_sandbox.sandbox import java
from pulsar_sandbox.sandbox.jars import jars_for
from pulsar_sandbox.sandbox.java import Java, find_java, find_maven

TARGET = 'for argument; do case "$argument" in -DoutputDirectory=*) target="${argument#*=}";; esac; done'


def script(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one folder that is searched for programs; empty, no JAVA_HOME, and no Java is installed beside."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "INSTALLED", ((tmp_path / "jvm", "*/bin/java"),))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PULSAR_FLEET_SANDBOX_JARS", str(tmp_path / "jars"))
    return tmp_path / "jars"


def test_without_java_the_message_says_how_to_install_it(only: Path) -> None:
    with pytest.raises(
        PreconditionFailed, match=r"No Java on PATH.*apt-get install openjdk-17.*brew install openjdk@17"
    ):
        find_java()


def test_a_wrong_java_home_is_named(only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(PreconditionFailed, match="No Java in JAVA_HOME '/nowhere'"):
        find_java()


@pytest.mark.parametrize("answer", ['openjdk version "11.0.2" 2019-01-15', 'java version "1.8.0_402"', "no runtime"])
def test_a_java_that_is_too_old_is_refused_with_its_version(only: Path, answer: str) -> None:
    script(only, "java", f"echo '{answer}' >&2")
    with pytest.raises(PreconditionFailed, match="needs Java 17 or later") as caught:
        find_java()
    assert answer in str(caught.value)


@pytest.mark.parametrize(("answer", "major"), [('openjdk version "17.0.15"', 17), ('openjdk version "25" 2025', 25)])
def test_a_java_from_17_on_is_taken(only: Path, answer: str, major: int) -> None:
    script(only, "java", f"echo '{answer}' >&2")
    assert find_java().major == major


def test_a_version_that_needs_a_later_java_gets_one_beside_it(only: Path, tmp_path: Path) -> None:
    script(only, "java", "echo 'openjdk version \"17.0.15\"' >&2")
    with pytest.raises(PreconditionFailed, match=r"needs Java 21 or later; .*openjdk-21.*openjdk@21"):
        find_java(21)
    for major in (21, 25, 11):
        script(tmp_path / f"jvm/{major}/bin", "java", f"echo 'openjdk version \"{major}.0.1\"' >&2")
    assert find_java(21) == Java(str(tmp_path / "jvm/25/bin/java"), 25)
    assert find_java().major == 17


def test_without_maven_the_message_says_how_to_install_it(only: Path) -> None:
    with pytest.raises(PreconditionFailed, match=r"No Maven .*apt-get install maven.*brew install maven"):
        find_maven()


def test_an_unknown_version_is_rejected_before_anything_is_fetched(cache: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"'9\.9\.9' is not one that the sandbox can start"):
        jars_for("9.9.9")
    assert not cache.exists()


def test_jars_that_are_there_are_used_without_maven(cache: Path, only: Path) -> None:
    (cache / "4.2.4").mkdir(parents=True)
    assert jars_for("4.2.4") == cache / "4.2.4"


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a `mvn` that comes before the real one."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    return tmp_path / "bin"


def test_a_cut_download_leaves_nothing_that_counts_as_complete(cache: Path, maven: Path) -> None:
    script(maven, "mvn", f'{TARGET}; mkdir "$target"; touch "$target/half.jar"; echo "[ERROR] cut"; exit 1')
    with pytest.raises(
        PreconditionFailed, match=r"could not fetch the jars of Pulsar 4\.2\.4 \(exit code 1\).*\n\[ERROR\] cut"
    ):
        jars_for("4.2.4")
    assert not (cache / "4.2.4").exists()


def test_a_download_after_a_cut_one_starts_afresh(cache: Path, maven: Path) -> None:
    (cache / "4.2.4.partial").mkdir(parents=True)
    (cache / "4.2.4.partial" / "half.jar").touch()
    script(maven, "mvn", f'{TARGET}; mkdir "$target"; touch "$target/whole.jar"')
    assert [jar.name for jar in jars_for("4.2.4").iterdir()] == ["whole.jar"]


def test_progress_tells_how_far_the_download_is(cache: Path, maven: Path) -> None:
    lines = 'i=0; while [ $i -lt 120 ]; do echo "Downloaded from central: $i"; i=$((i+1)); done'
    script(maven, "mvn", f'{TARGET}; mkdir "$target"; {lines}')
    messages: list[str] = []
    jars_for("4.2.4", messages.append)
    assert [message for message in messages if "files fetched" in message] == [
        "Pulsar 4.2.4: 50 files fetched",
        "Pulsar 4.2.4: 100 files fetched",
    ]
