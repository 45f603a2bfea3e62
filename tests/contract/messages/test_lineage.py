"""The lineage of the operators on a real broker: the topic is a dataset; skipped without the OpenLineage provider."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG

from pulsar_fleet.airflow import PulsarConsumeOperator, PulsarPublishOperator
from pulsar_fleet.airflow.operators.messages import dataset_namespace
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName

CONTEXT: Any = {"ti": SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1)}


@pytest.fixture
async def topic(
    blue: ClusterConnection,
    on_blue: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    make_namespace: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """A topic of blue, which is the default connection."""
    document = {"conn_type": "pulsar", "host": blue.admin_url, "extra": {"service_url": blue.service_url}}
    monkeypatch.setenv("AIRFLOW_CONN_PULSAR_DEFAULT", json.dumps(document))
    namespace = new_namespace()
    await make_namespace(on_blue, namespace)
    return f"persistent://{namespace}/orders"


def operators(topic: str) -> tuple[PulsarPublishOperator, PulsarConsumeOperator]:
    names: dict[str, Any] = {"topic": topic, "subscription": "warehouse", "process": print, "wait_seconds": 1}
    with DAG("lineage", schedule=None):
        return (
            PulsarPublishOperator(task_id="publish", topic=topic, messages=["1"]),
            PulsarConsumeOperator(task_id="consume", **names),
        )


def test_what_is_published_is_an_output_and_what_is_consumed_an_input(topic: str, blue: ClusterConnection) -> None:
    base = pytest.importorskip("airflow.providers.openlineage.extractors.base", reason="its provider is not installed")
    dataset = (dataset_namespace(str(blue.service_url)), topic)
    extracted = []
    for operator in operators(topic):
        operator.execute(CONTEXT)
        extracted.append(base.DefaultExtractor(operator).extract_on_complete(None))
    published, consumed = extracted
    assert [(output.namespace, output.name) for output in published.outputs] == [dataset]
    assert [(read.namespace, read.name) for read in consumed.inputs] == [dataset]
    assert (published.inputs, consumed.outputs) == ([], [])


def test_a_task_that_did_not_run_has_no_dataset(topic: str) -> None:
    assert [operator.get_openlineage_facets_on_complete(None) for operator in operators(topic)] == [None, None]


@pytest.mark.parametrize("url", ["pulsar://a:6650", "pulsar+ssl://a:6650,b:6650", "pulsar://a:6650/"])
def test_a_cluster_has_one_namespace_of_datasets(url: str) -> None:
    assert dataset_namespace(url) == "pulsar://a:6650"
