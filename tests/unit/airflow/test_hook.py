"""The hook without a cluster: what it reads of its connection, what it opens and closes, and Airflow's form."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pulsar
import pytest

from pulsar_fleet.airflow import PulsarHook
from pulsar_fleet.airflow.connection_form import FIELDS
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import InvalidRequest

VARIABLE = "AIRFLOW_CONN_PULSAR_DEFAULT"
NOBODY = "pulsar://127.0.0.1:9"


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> PulsarHook:
    """The hook of the default connection, at whose addresses nobody answers."""
    document = {"conn_type": "pulsar", "host": "http://127.0.0.1:9", "extra": {"service_url": NOBODY}}
    monkeypatch.setenv(VARIABLE, json.dumps(document))
    return PulsarHook()


def test_a_hook_reads_its_connection_once(hook: PulsarHook, monkeypatch: pytest.MonkeyPatch) -> None:
    first = hook.cluster
    monkeypatch.delenv(VARIABLE)
    assert (hook.cluster, first.name, first.service_url) == (first, "pulsar_default", NOBODY)


def test_the_connection_of_airflow_is_a_client_of_the_admin_api(hook: PulsarHook) -> None:
    first, second = hook.get_conn(), hook.get_conn()
    assert isinstance(first, AdminClient)
    assert (first.connection, first is second) == (hook.cluster, False)


@pytest.mark.parametrize("error", [None, ValueError], ids=["success", "error"])
def test_a_message_client_is_closed_after_its_block(hook: PulsarHook, error: type[Exception] | None) -> None:
    with suppress(ValueError), hook.message_client() as client:
        if error:
            raise error
    with pytest.raises(pulsar.AlreadyClosed):
        client.close()


def test_a_message_client_needs_a_broker_service_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, json.dumps({"conn_type": "pulsar", "host": "http://127.0.0.1:9"}))
    with pytest.raises(InvalidRequest, match="no broker service URL"), PulsarHook().message_client():
        pass


def test_the_environment_of_a_job_has_the_credentials_and_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"service_url": NOBODY, "token_file": "/run/secrets/token"}
    monkeypatch.setenv(VARIABLE, json.dumps({"conn_type": "pulsar", "host": "http://127.0.0.1:9", "extra": extra}))
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    assert PulsarHook().job_environment() == {**python, "PULSAR_FLEET_SOURCE_TOKEN_FILE": "/run/secrets/token"}


def test_the_form_of_airflow_3_1_has_every_field(monkeypatch: pytest.MonkeyPatch) -> None:
    # Later releases read the metadata, and do not install wtforms.
    field: Any = lambda label, description: (label, description)  # noqa: E731
    monkeypatch.setitem(sys.modules, "wtforms", SimpleNamespace(StringField=field, IntegerField=field))
    widgets = PulsarHook.get_connection_form_widgets()
    assert widgets == {name: (shown.label, shown.description) for name, shown in FIELDS.items()}
