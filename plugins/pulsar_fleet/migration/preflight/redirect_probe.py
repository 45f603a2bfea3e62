"""Connect to the addresses of the redirect: does green answer there, and does it accept blue's clients?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlsplit

import tenacity

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.probes import host_urls, unreachable
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import (
    FleetError,
    NotAllowed,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    Unauthenticated,
    Unavailable,
)
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.protocol.connection import ConnectionLost, WireConnection
from pulsar_fleet.messages.protocol.lookup import Brokers
from pulsar_fleet.migration.artefacts import REDIRECT
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.redirect import Redirect, redirect_to
from pulsar_fleet.migration.preflight.view import AddressProbe, RedirectProbe

_SECONDS = 10.0
_TRIES = 3
"""A busy broker answers late (observed: not within 5 s), which says nothing about what it accepts."""
_LOOKED_UP = {
    "serviceUrl": "httpUrl",
    "serviceUrlTls": "httpUrlTls",
    "brokerServiceUrl": "brokerUrl",
    "brokerServiceUrlTls": "brokerUrlTls",
}


def redirect_of(sides: Sides, run: Run) -> Redirect:
    """The redirect of a run: the addresses that its gates verified, or those of green's connection."""
    document = run.stored(REDIRECT)
    return Redirect.from_json(document) if document else redirect_to(sides.green)


async def advertised_addresses(green: AdminClient) -> dict[str, dict[str, str]]:
    """Broker (`host:port`) → the addresses that it gives to clients, by the redirect's keys. Loads no topic.

    It looks up each broker's health-check topic, which that broker always serves itself.
    """
    brokers = await green.brokers()
    answers = await asyncio.gather(*(green.http.call("GET", _lookup_path(broker)) for broker in brokers))
    documents: list[JsonObject] = [dict(green.http.document(answer)) for answer in answers]
    return {
        broker: {key: str(lookup[name]) for key, name in _LOOKED_UP.items() if lookup.get(name)}
        for broker, lookup in zip(brokers, documents, strict=True)
    }


def addresses_of_all(advertised: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
    """The addresses that stand for a whole cluster: those of its only broker; none where it has several.

    :param advertised: the result of `advertised_addresses`.
    """
    return next(iter(advertised.values())) if len(advertised) == 1 else {}


async def probe_redirect(
    blue: ClusterConnection,
    green: ClusterConnection,
    redirect: Redirect,
    advertised: Mapping[str, Mapping[str, str]],
) -> RedirectProbe:
    """Connect to every address of `redirect` and ask which broker answers there; changes nothing.

    :param advertised: the result of `advertised_addresses` for green.
    """
    own = frozenset(address for addresses in advertised.values() for address in addresses.values())
    broker = next(iter(sorted(advertised)), "")
    probes = await asyncio.gather(
        *(
            _probe(green, key, url, placeholder=key in redirect.placeholders, own=own, broker=broker)
            for key, url in redirect.document.items()
        )
    )
    probe = RedirectProbe(document=dict(redirect.document), probes=tuple(probes), advertised=own)
    if any(each.answered in own and each.key.startswith("broker") for each in probes):
        return await asyncio.to_thread(_with_refusals, probe, blue, green, broker)
    return probe


async def probe_stored(
    green: ClusterConnection, stored: Mapping[str, str], advertised: Mapping[str, Mapping[str, str]]
) -> tuple[AddressProbe, ...]:
    """Which broker answers at the addresses to which a cluster redirects its clients; changes nothing.

    Nobody has said that they are green's, so they get no credentials: a cluster that asks for them stays unknown.
    """
    own = frozenset(address for addresses in advertised.values() for address in addresses.values())
    anonymous = green.with_credentials_of(None)
    broker = next(iter(sorted(advertised)), "")
    probes = (
        _probe(anonymous, key, url, placeholder=False, own=own, broker=broker)
        for key, url in stored.items()
        if key.startswith("broker")
    )
    return tuple(await asyncio.gather(*probes))


async def probe_hosts(
    cluster: ClusterConnection, url: str, advertised: Mapping[str, Mapping[str, str]], *, anonymous: bool
) -> tuple[AddressProbe, ...]:
    """Which broker answers at each host of a service URL; changes nothing.

    :param anonymous: nobody has said that the address is the cluster's: it gets no credentials.
    """
    own = frozenset(address for addresses in advertised.values() for address in addresses.values())
    asking = cluster.with_credentials_of(None) if anonymous else cluster
    broker = next(iter(sorted(advertised)), "")
    probes = (
        _probe(asking, "brokerServiceUrl", host, placeholder=False, own=own, broker=broker) for host in host_urls(url)
    )
    return tuple(await asyncio.gather(*probes))


async def require_answer(connection: ClusterConnection, name: str, url: str) -> None:
    """Refuse a service URL at which the cluster does not answer, or another one does."""
    async with AdminClient(connection) as admin:
        try:
            advertised = await advertised_addresses(admin)
        except FleetError as error:
            raise PreconditionFailed(_unknown(url, name, str(error))) from error
    own = {_host(address) for addresses in advertised.values() for address in addresses.values()}
    # Nobody has said of another address that it is the cluster's: it gets no credentials.
    anonymous = url not in (connection.service_url, *connection.client_urls)
    probes = await probe_hosts(connection, url, advertised, anonymous=anonymous)
    # By hosts: a proxy may end TLS, and its brokers have none.
    if other := next((one for one in probes if one.answered and _host(one.answered) not in own), None):
        raise PreconditionFailed(_unknown(url, name, f"at {_host(other.url)} {other.answered} answers"))
    if any(one.answered for one in probes) and not any(one.detail for one in probes):
        return
    texts = [one.error or one.detail or f"{_host(one.url)} answers" for one in probes]
    found = "; ".join(text.replace("{green}", name).rstrip(".") for text in texts)
    asks = ". It got no credentials: those are sent to addresses of the connection only" if anonymous else ""
    raise PreconditionFailed(_unknown(url, name, f"{found}{asks}"))


def _unknown(url: str, name: str, why: str) -> str:
    return (
        f"It is not known that {url} leads to {name}: {why.rstrip('.')}. Applications stay where they are. Correct the "
        "address; or add --unverified, if you know that the applications reach the cluster there."
    )


def _host(address: str) -> str:
    return address.partition("://")[2]


async def _probe(
    green: ClusterConnection, key: str, url: str, *, placeholder: bool, own: frozenset[str], broker: str
) -> AddressProbe:
    probe = AddressProbe(key=key, url=url, placeholder=placeholder)
    hosts = [f"{urlsplit(url).scheme}://{host}" for host in url.partition("://")[2].split(",")]
    refused = await unreachable(hosts)
    if len(refused) == len(hosts):
        return replace(probe, error="; ".join(refused.values()))
    if all(host in own for host in hosts):
        return replace(probe, answered=hosts[0])
    if placeholder:
        # Never send credentials to a guessed address.
        return replace(probe, detail="it is a guess, and no broker of {green} advertises it")
    if not key.startswith("broker"):
        return await _ask_admin(green, probe, broker)
    return await asyncio.to_thread(_ask_broker, replace(green, service_url=url), probe, broker)


async def _ask_admin(green: ClusterConnection, probe: AddressProbe, broker: str) -> AddressProbe:
    """Whether an admin address that no broker advertises, such as a load balancer's, leads to this broker."""
    if not broker:
        return replace(probe, detail="{green}'s brokers could not be listed")
    try:
        async with AdminClient(replace(green, admin_url=probe.url), retry_seconds=0.0) as admin:
            lookup = admin.http.document(await admin.http.call("GET", _lookup_path(broker)))
    except NotFound:
        return replace(probe, answered=f"a broker that does not know {broker}")
    except FleetError as error:
        return replace(probe, detail=str(error))
    return replace(probe, answered=str(lookup.get(_LOOKED_UP[probe.key]) or ""))


def _ask_broker(connection: ClusterConnection, probe: AddressProbe, broker: str) -> AddressProbe:
    """Which broker serves, by this address, the health topic of a broker of green: that broker, if it is green."""
    if not broker:
        return replace(probe, detail="{green}'s brokers could not be listed")
    try:
        serving = _serving(connection, broker)
    except (ConnectionLost, PermissionDenied) as error:
        return replace(probe, detail=str(error))
    except FleetError:
        # A broker looks up brokers of its own cluster only: another cluster does not know green's.
        return replace(probe, answered=f"a broker that does not know {broker}")
    scheme = urlsplit(probe.url).scheme
    return replace(probe, answered=f"{scheme}://{serving.broker_url}" if serving.broker_url else str(serving.address))


def _with_refusals(
    probe: RedirectProbe, blue: ClusterConnection, green: ClusterConnection, broker: str
) -> RedirectProbe:
    """With green's errors for blue's credentials and for blue's trust store, and with why green did not answer."""
    as_blue = green.with_credentials_of(blue)
    try:
        _serving(as_blue, broker)
    except NotAllowed:
        return probe  # Green authenticated the role; another gate compares its permissions.
    except Unavailable as error:
        return replace(probe, unanswered=str(error))
    except Unauthenticated as error:
        return replace(probe, credentials=str(error))
    except PermissionDenied as error:
        return replace(probe, trust=str(error))
    except FleetError as error:
        return replace(probe, credentials=str(error))
    return probe


@tenacity.retry(
    retry=tenacity.retry_if_exception_type(ConnectionLost), stop=tenacity.stop_after_attempt(_TRIES), reraise=True
)
def _serving(connection: ClusterConnection, broker: str) -> WireConnection:
    """The closed connection to the broker that serves the health topic of this broker."""
    brokers = Brokers(connection, timeout_seconds=_SECONDS)
    try:
        return brokers.serving(_health_topic(broker))
    finally:
        brokers.close()


def _health_topic(broker: str) -> str:
    return f"persistent://pulsar/{broker}/healthcheck"


def _lookup_path(broker: str) -> str:
    return f"/lookup/v2/topic/persistent/pulsar/{broker}/healthcheck"
