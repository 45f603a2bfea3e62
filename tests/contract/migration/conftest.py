"""What several tests of migrations take."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.support.migration import clear_flags
from tests.support.moved_namespace import MovedNamespace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import NamespaceName


@pytest.fixture
async def moved(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: Callable[[], NamespaceName], tmp_path: Path
) -> AsyncIterator[MovedNamespace]:
    """A namespace on blue with a topic `live`, and the run that moves it."""
    await clear_flags(on_blue, on_green)
    moved = MovedNamespace.at(on_blue, on_green, new_namespace(), tmp_path)
    await moved.make()
    yield moved
    await moved.close()
