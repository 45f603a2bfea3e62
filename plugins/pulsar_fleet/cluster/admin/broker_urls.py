"""The URL at which one broker answers for itself, also where a load balancer is in front of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

import httpx

from pulsar_fleet.cluster.admin.http import BrokerHttp
from pulsar_fleet.cluster.errors import PreconditionFailed

_AT_ONCE, _ROUNDS = 4, 5


class BrokerUrls:
    """URLs of brokers by `host:port`, the name under which brokers list each other; each is found once.

    The connection's `broker_urls` come first. Without TLS the name is the address. With TLS the list has plain ports
    all the same, and a broker that is asked about another one redirects to its TLS port. A broker that is asked about
    itself does not: then nothing tells whether the admin URL leads to this broker or through a balancer to any, so its
    address is asked of another broker. A balancer chooses a broker for each connection, so these calls close theirs,
    and one broker is sought after the other: calls about two brokers that take turns each got a connection to its own.
    """

    def __init__(
        self,
        http: BrokerHttp,
        cluster_name: Callable[[], Awaitable[str]],
        brokers: Callable[[], Awaitable[Sequence[str]]],
    ) -> None:
        self._http = http
        self._cluster_name = cluster_name
        self._brokers = brokers
        self._found: dict[str, str] = {}
        self._one_at_a_time = asyncio.Lock()

    async def find(self, broker: str) -> str:
        """The URL of a broker; `PreconditionFailed` if no other broker tells it: not absent, but unknown."""
        connection = self._http.connection
        if configured := connection.broker_url(broker):
            return configured
        if urlsplit(self._http.admin_url).scheme == "http":
            return f"http://{broker}"
        async with self._one_at_a_time:
            if broker not in self._found:
                self._found[broker] = await self._ask(broker)
        return self._found[broker]

    async def _ask(self, broker: str) -> str:
        if url := await self._redirect(broker):
            return url
        others = [other for other in await self._brokers() if other != broker]
        if not others:
            return self._http.admin_url
        for _ in range(_ROUNDS):
            if url := await self._redirect_of_any(broker):
                return url
            for other in others:
                neighbour = await self._redirect_of_any(other)
                if neighbour and (url := await self._redirect(broker, neighbour)):
                    return url
        name = self._http.connection.name
        raise PreconditionFailed(
            f"{name}: the address of broker {broker} is not known, since every call about a broker was answered at "
            f'{self._http.admin_url}, as a proxy does: name it in the connection, "broker_urls": '
            f'{{"{broker}": "https://host:port"}}.',
            cluster=name,
        )

    async def _redirect_of_any(self, broker: str) -> str | None:
        """The redirect of any of several calls at once: a balancer leads their connections to different brokers."""
        answers = await asyncio.gather(*(self._redirect(broker) for _ in range(_AT_ONCE)))
        return next(filter(None, answers), None)

    async def _redirect(self, broker: str, base: str | None = None) -> str | None:
        """Where a call about a broker is answered, if that is not where it was sent."""
        path = f"/admin/v2/brokers/{await self._cluster_name()}/{broker}/ownedNamespaces"
        answer = (await self._http.call("GET", path, base=base, keep_alive=False)).url
        sent_to = httpx.URL(base or self._http.admin_url)
        return None if answer.netloc == sent_to.netloc else f"{answer.scheme}://{answer.netloc.decode()}"
