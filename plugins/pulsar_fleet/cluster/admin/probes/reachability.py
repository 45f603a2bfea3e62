"""Check which addresses in a cluster's data accept a connection from here; brokers may be in another network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from urllib.parse import urlsplit

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.redaction import without_user_info

ADDRESSES = ("serviceUrl", "serviceUrlTls", "brokerServiceUrl", "brokerServiceUrlTls", "proxyServiceUrl")
_DEFAULT_PORTS = {"http": 80, "https": 443, "pulsar": 6650, "pulsar+ssl": 6651}
_SECONDS = 3.0


def addresses(data: JsonObject) -> tuple[str, ...]:
    """`scheme://host:port` of every address in a cluster's data; a URL may have several hosts, and a password."""
    urls = []
    for key in ADDRESSES:
        scheme, _, hosts = str(without_user_info(data.get(key)) or "").partition("://")
        urls += [f"{scheme}://{host.strip('/')}" for host in hosts.split(",") if host]
    return tuple(sorted(set(urls)))


async def unreachable(urls: Iterable[str]) -> dict[str, str]:
    """Address → reason why it accepts no connection, for the unreachable ones."""
    addresses = sorted(set(urls))
    answers = await asyncio.gather(*(_try(url) for url in addresses))
    return {url: why for url, why in zip(addresses, answers, strict=True) if why}


async def _try(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
        async with asyncio.timeout(_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except (OSError, ValueError, TimeoutError) as error:
        return str(error) or f"no answer in {_SECONDS:.0f} s"
    writer.close()
    return ""
