"""The address for blue's clients always has all four URLs."""

from __future__ import annotations

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.migration.redirect import redirect_to

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
