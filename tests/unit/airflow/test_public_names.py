"""The public names of the package: each can be imported, and none is imported before its first use."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize("module", ["pulsar_fleet.airflow", "pulsar_fleet.spark"])
def test_every_public_name_can_be_imported(module: str) -> None:
    package = import_module(module)
    assert [name for name in package.__all__ if getattr(package, name).__name__ != name] == []
    with pytest.raises(AttributeError, match="has no attribute 'Pulsar'"):
        _ = package.Pulsar


@pytest.mark.parametrize("module", ["pulsar_fleet.airflow", "pulsar_fleet.spark"])
def test_the_package_imports_nothing_before_a_name_is_used(module: str) -> None:
    script = f"import sys, {module}; sys.exit(bool({{'airflow', 'pyspark'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_every_public_class_is_described_on_the_page_of_the_provider() -> None:
    described = set(re.findall(r"^\| \[`(\w+)`\]", (REPOSITORY / "docs" / "provider.md").read_text(), re.MULTILINE))
    assert set(import_module("pulsar_fleet.airflow").__all__) == described
