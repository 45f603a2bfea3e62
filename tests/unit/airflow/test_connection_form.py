"""The form of a connection knows the fields that the connection knows, and refuses what it would refuse."""

from __future__ import annotations

import pytest

from pulsar_fleet.airflow.connection_form import FIELDS, behaviour, metadata
from pulsar_fleet.airflow.hooks.pulsar import PulsarHook
from pulsar_fleet.airflow.provider_info import get_provider_info
from pulsar_fleet.cluster.connection_fields import EXTRAS, ConnectionFields

SECRETS = {"token", "oauth2_client_secret"}
"""They belong into the field of the password, which is encrypted and hidden."""


def test_the_form_has_every_extra_but_secrets() -> None:
    assert set(FIELDS) == set(EXTRAS) - SECRETS


def test_empty_fields_of_the_form_store_a_connection_with_the_defaults() -> None:
    for empty in (None, ""):
        fields = ConnectionFields(conn_id="c", host="http://localhost:8080", extra=dict.fromkeys(FIELDS, empty))
        assert (fields.cluster().timeout_seconds, fields.cluster().service_url) == (30, None)


@pytest.mark.parametrize("name", ["timeout_seconds", "max_connections"])
def test_the_form_takes_numbers_only_for_numbers(name: str) -> None:
    assert FIELDS[name].json_schema()["type"][0] in ("number", "integer")


@pytest.mark.parametrize(("host", "port"), [("https://a.example", 8443), ("https://a.example:8443", None)])
def test_the_port_may_have_its_own_field(host: str, port: int | None) -> None:
    assert ConnectionFields(conn_id="c", host=host, port=port).cluster().admin_url == "https://a.example:8443"


def test_older_and_newer_releases_of_airflow_get_the_same_form() -> None:
    (described,) = get_provider_info()["connection-types"]
    assert described["connection-type"] == PulsarHook.conn_type
    assert described["ui-field-behaviour"]["relabeling"] == PulsarHook.get_ui_field_behaviour()["relabeling"]
    assert (list(metadata()["conn-fields"]), behaviour()["hidden_fields"]) == (list(FIELDS), ["schema"])
