"""The address for blue's clients always has all four URLs."""

from __future__ import annotations

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.migration.cutover.redirect import Redirect, redirect_to
from pulsar_fleet.migration.preflight.view import AddressProbe, RedirectProbe

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
