"""Try the addresses to which blue's clients would be sent: does green answer there, and does it let them in?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.reachability import unreachable
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError, NotAllowed, NotFound, PermissionDenied, Unauthenticated
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.messages.protocol.connection import ConnectionLost
from pulsar_fleet.messages.protocol.lookup import Brokers
from pulsar_fleet.migration.cutover.redirect import Redirect
from pulsar_fleet.migration.preflight.view import AddressProbe, Redirecting

_SECONDS = 5.0
_LOOKED_UP = {
    "serviceUrl": "httpUrl",
    "serviceUrlTls": "httpUrlTls",
    "brokerServiceUrl": "brokerUrl",
    "brokerServiceUrlTls": "brokerUrlTls",
}


async def advertised_addresses(green: AdminClient) -> dict[str, dict[str, str]]:
    """Broker (`host:port`) → the addresses that it gives to clients, by the redirect's keys. Nothing is loaded.

    The topic that a broker checks its own health with is always its own, whichever cluster it belongs to.
    """
    brokers = await green.brokers()
    answers = await asyncio.gather(*(green.http.call("GET", _lookup_path(broker)) for broker in brokers))
    documents: list[JsonObject] = [dict(green.http.document(answer)) for answer in answers]
    return {
        broker: {key: str(found[name]) for key, name in _LOOKED_UP.items() if found.get(name)}
        for broker, found in zip(brokers, documents, strict=True)
    }


async def try_redirect(
    blue: ClusterConnection,
    green: ClusterConnection,
    redirect: Redirect,
    advertised: Mapping[str, Mapping[str, str]],
) -> Redirecting:
    """Open every address of `redirect`, and ask what answers there which broker it is; changes nothing.

    :param advertised: what `advertised_addresses` found on green.
    """
    own = frozenset(address for addresses in advertised.values() for address in addresses.values())
    broker = next(iter(sorted(advertised)), "")
    probes = await asyncio.gather(
        *(
            _probe(green, key, url, placeholder=key in redirect.placeholders, own=own, broker=broker)
            for key, url in redirect.document.items()
        )
    )
    credentials, trust = "", ""
    if any(probe.answered in own and probe.key.startswith("broker") for probe in probes):
        credentials, trust = await asyncio.to_thread(_let_in, blue, green, broker)
    return Redirecting(
        document=dict(redirect.document), probes=tuple(probes), advertised=own, credentials=credentials, trust=trust
    )


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
        # A guess gets none of our credentials.
        return replace(probe, detail="it is a guess, and none of green's brokers gives it for its own")
    if not key.startswith("broker"):
        return await _ask_admin(green, probe, broker)
    return await asyncio.to_thread(_ask_broker, replace(green, service_url=url), probe, broker)


async def _ask_admin(green: ClusterConnection, probe: AddressProbe, broker: str) -> AddressProbe:
    """Whether an admin address that is not a broker's own, such as a load balancer's, leads to the broker asked for."""
    if not broker:
        return replace(probe, detail="green's brokers could not be listed")
    try:
        async with AdminClient(replace(green, admin_url=probe.url), retry_seconds=0.0) as admin:
            found = admin.http.document(await admin.http.call("GET", _lookup_path(broker)))
    except NotFound:
        return replace(probe, answered=f"a broker that does not know {broker}")
    except FleetError as error:
        return replace(probe, detail=str(error))
    return replace(probe, answered=str(found.get(_LOOKED_UP[probe.key]) or ""))


def _ask_broker(there: ClusterConnection, probe: AddressProbe, broker: str) -> AddressProbe:
    """Which broker serves, by this address, the health topic of one of green's brokers: that one, if it is green."""
    if not broker:
        return replace(probe, detail="green's brokers could not be listed")
    brokers = Brokers(there, timeout_seconds=_SECONDS)
    try:
        found = brokers.serving(_health_topic(broker))
        scheme = urlsplit(probe.url).scheme
        return replace(probe, answered=f"{scheme}://{found.broker_url}" if found.broker_url else str(found.address))
    except (ConnectionLost, PermissionDenied) as error:
        return replace(probe, detail=str(error))
    except FleetError:
        # A broker looks up its own cluster's brokers only: green's are unknown to any other.
        return replace(probe, answered=f"a broker that does not know {broker}")
    finally:
        brokers.close()


def _let_in(blue: ClusterConnection, green: ClusterConnection, broker: str) -> tuple[str, str]:
    """What green says to the credentials and the trust store with which we come to blue; both empty: nothing."""
    as_blue = replace(
        green,
        token=blue.token,
        token_file=blue.token_file,
        oauth2=blue.oauth2,
        tls_trust_file=blue.tls_trust_file or green.tls_trust_file,
        tls_certificate_file=blue.tls_certificate_file,
        tls_key_file=blue.tls_key_file,
    )
    brokers = Brokers(as_blue, timeout_seconds=_SECONDS)
    try:
        brokers.serving(_health_topic(broker))
    except NotAllowed:
        return "", ""  # It knows who we are; what a role may do is told by the roles' own gate.
    except Unauthenticated as error:
        return str(error), ""
    except PermissionDenied as error:
        return "", str(error)
    except FleetError as error:
        return str(error), ""
    finally:
        brokers.close()
    return "", ""


def _health_topic(broker: str) -> str:
    return f"persistent://pulsar/{broker}/healthcheck"


def _lookup_path(broker: str) -> str:
    return f"/lookup/v2/topic/persistent/pulsar/{broker}/healthcheck"
