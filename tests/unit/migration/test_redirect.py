"""The address for blue's clients always has all four URLs; and what is said of a redirect that is stored."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import NotAllowed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.migration.cutover.redirect import Redirect, redirect_to
from pulsar_fleet.migration.preflight.view import AddressProbe, RedirectProbe
from pulsar_fleet.migration.prepare.overrides import OriginalSettings
from pulsar_fleet.snapshot import resources

KEYS = {"serviceUrl", "serviceUrlTls", "brokerServiceUrl", "brokerServiceUrlTls"}


def test_a_plain_green_gets_placeholders_for_the_encrypted_kind() -> None:
    green = ClusterConnection(name="green", admin_url="http://green:8080", service_url="pulsar://green:6650")
    redirect = redirect_to(green)
    assert redirect.document["brokerServiceUrl"] == "pulsar://green:6650"
    assert set(redirect.placeholders) == {"serviceUrlTls", "brokerServiceUrlTls"}


def test_an_encrypted_green_gets_placeholders_for_the_plain_kind() -> None:
    green = ClusterConnection(name="green", admin_url="https://green:8443", service_url="pulsar+ssl://green:6651")
    redirect = redirect_to(green)
    assert redirect.document["brokerServiceUrlTls"] == "pulsar+ssl://green:6651"
    assert set(redirect.placeholders) == {"serviceUrl", "brokerServiceUrl"}


def test_no_address_is_ever_empty() -> None:
    green = ClusterConnection(name="green", admin_url="http://green:8080", service_url="pulsar+ssl://green:6651")
    document = redirect_to(green).document
    assert set(document) == KEYS
    assert all(document.values())


def test_an_address_that_the_connection_lacks_is_taken_from_greens_brokers() -> None:
    green = ClusterConnection(name="green", admin_url="http://green:8080", service_url="pulsar://green:6650")
    offered = {"brokerServiceUrl": "pulsar://broker-0:6650", "brokerServiceUrlTls": "pulsar+ssl://broker-0:16651"}
    redirect = redirect_to(green, offered)
    assert redirect.document["brokerServiceUrl"] == "pulsar://green:6650"
    assert redirect.document["brokerServiceUrlTls"] == "pulsar+ssl://broker-0:16651"
    assert redirect.placeholders == ("serviceUrlTls",)


def test_addresses_of_applications_replace_those_of_connection_and_broker() -> None:
    urls = ("pulsar+ssl://apps:6651", "http://apps:8080")
    green = ClusterConnection(
        name="green", admin_url="https://in:8443", service_url="pulsar+ssl://in:6651", client_urls=urls
    )
    redirect = redirect_to(green, {"brokerServiceUrl": "pulsar://broker-0:6650"})
    assert redirect.document == {
        "serviceUrl": "http://apps:8080",
        "serviceUrlTls": "https://apps:8443",
        "brokerServiceUrl": "pulsar://apps:6650",
        "brokerServiceUrlTls": "pulsar+ssl://apps:6651",
    }
    assert set(redirect.placeholders) == {"serviceUrlTls", "brokerServiceUrl"}


def test_what_was_proven_is_what_is_stored() -> None:
    redirect = redirect_to(ClusterConnection(name="green", admin_url="http://green:8080", service_url="pulsar://g:1"))
    probes = tuple(
        AddressProbe(key=key, url=url, placeholder=key in redirect.placeholders)
        for key, url in redirect.document.items()
    )
    assert Redirect.from_json(RedirectProbe(document=redirect.document, probes=probes).to_json()) == redirect


GREEN = ClusterConnection(name="green", admin_url="https://green:9443", service_url="pulsar+ssl://u:p@green:6651")
STORED = {"migratedClusterUrl": redirect_to(GREEN).document}


@pytest.mark.parametrize(
    ("flagged", "stored", "said"),
    [
        (False, None, ""),
        (False, {"migrated": False, **STORED}, ""),
        (True, {"migratedClusterUrl": redirect_to(GREEN).document}, "redirects its clients to {0}green"),
        (
            False,
            {"migrated": True, "migratedClusterUrl": redirect_to(GREEN).document},
            "redirects its clients to {0}green",
        ),
        (True, None, "has no redirect for its clients"),
        (True, NotAllowed("no"), "redirects its clients to {1}"),
        (False, NotAllowed("no"), ""),
    ],
)
@pytest.mark.parametrize("recorded", [False, True])
async def test_a_migration_is_named_with_the_host_of_its_redirect(
    monkeypatch: pytest.MonkeyPatch, flagged: bool, stored: Any, said: str, recorded: bool
) -> None:
    name = NamespaceName("acme", "orders")

    async def read(*_: object) -> JsonObject | None:
        if isinstance(stored, Exception):
            raise stored
        return dict(stored) if stored else None

    async def own() -> str:
        return "blue"

    monkeypatch.setattr(resources, "stored_redirect", read)
    settings = OriginalSettings(
        green="green", publish_rates={str(name): None}, replication={str(name): []}, inactive={str(name): None}
    )
    record = settings.record(name, run="moved", since="", cluster="blue").to_json()
    properties = {"pulsar-fleet.overrides": json.dumps(record)} if recorded else {}
    admin: Any = SimpleNamespace(cluster_name=own)
    text = await resources.read_migrated_to(admin, name, {"migrated": flagged, "properties": properties})
    where = ("green at ", "green") if recorded else ("", "a cluster that this role may not read")
    by = " by the run moved" if recorded else ""
    assert text == (f"{name} is flagged as migrated on blue{by}: blue {said.format(*where)}" if said else "")
