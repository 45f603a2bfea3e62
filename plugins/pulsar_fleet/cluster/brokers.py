"""The brokers of a cluster: every one's version and effective configuration."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.attempts import Attempts
from pulsar_fleet.cluster.secrets import Seal
from pulsar_fleet.cluster.states import Area, BrokerState


async def read_brokers(admin: AdminClient, seal: Seal, attempts: Attempts) -> list[BrokerState]:
    """Ask every live broker at its own address: an answer of one says nothing about the others. Needs a superuser.

    For a role that may not ask, the one that answers is told with its version and without a configuration, and
    what is hidden is noted.
    """
    addresses = await attempts.read("brokers", admin.brokers(), area=Area.BROKERS)
    if addresses is None:
        return [BrokerState(urlsplit(admin.connection.admin_url).netloc, await admin.version(), {})]
    read = (attempts.read(f"broker {address}", _read_broker(admin, address, seal)) for address in addresses)
    return [one for one in await asyncio.gather(*read) if one is not None]


async def _read_broker(admin: AdminClient, address: str, seal: Seal) -> BrokerState:
    version = await admin.version(address)
    return BrokerState(address, version, seal.redact(await admin.runtime_configuration(address)))
