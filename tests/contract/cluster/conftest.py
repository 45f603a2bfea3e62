"""What several tests of the admin client take."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.support.proxy import Proxy

from pulsar_fleet.cluster.connection import ClusterConnection


@pytest.fixture
async def proxy(blue: ClusterConnection) -> AsyncIterator[Proxy]:
    """A proxy in front of blue's broker."""
    async with Proxy(blue.admin_url) as proxy:
        yield proxy
