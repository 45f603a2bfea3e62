"""The brokers of a cluster: every one's version and effective configuration."""

from __future__ import annotations

import asyncio

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.secrets import Seal
from pulsar_fleet.cluster.states import BrokerState


async def read_brokers(admin: AdminClient, seal: Seal) -> tuple[BrokerState, ...]:
    """Ask every live broker at its own address: an answer of one says nothing about the others. Needs a superuser."""
    addresses = await admin.brokers()
    return tuple(await asyncio.gather(*(_read_broker(admin, address, seal) for address in addresses)))


async def _read_broker(admin: AdminClient, address: str, seal: Seal) -> BrokerState:
    version = await admin.version(address)
    return BrokerState(address, version, seal.redact(await admin.runtime_configuration(address)))
