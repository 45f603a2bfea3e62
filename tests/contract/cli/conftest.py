"""What the tests of commands have in common."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.shell import Shell

from pulsar_fleet.cluster.connection import ClusterConnection


@pytest.fixture
def shell(records: Path, blue: ClusterConnection, green: ClusterConnection) -> Shell:
    """A shell in a folder of its own, with a ledger of its own."""
    return Shell.between(records, blue, green)
