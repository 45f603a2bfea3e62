"""The public names of the package: each can be imported, and none is imported before its first use."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest


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
