"""Datasets of OpenLineage for the operators of messages; nothing where its provider is not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pulsar_fleet.cluster.connection import ClusterConnection


def topic_lineage(cluster: ClusterConnection | None, topic: str, *, written: bool) -> Any:
    """The `OperatorLineage` of a task that wrote or read a topic: dataset `pulsar://host:port`, the name of the topic.

    None without the provider, or when the task did not reach the cluster.
    """
    try:
        from airflow.providers.common.compat.openlineage.facet import InputDataset, OutputDataset
        from airflow.providers.openlineage.extractors import OperatorLineage
    except ImportError:
        return None
    if cluster is None or not cluster.service_url:
        return None
    names = {"namespace": dataset_namespace(cluster.service_url), "name": topic}
    return (
        OperatorLineage(outputs=[OutputDataset(**names)])
        if written
        else OperatorLineage(inputs=[InputDataset(**names)])
    )


def dataset_namespace(service_url: str) -> str:
    """`pulsar://host:port` of the first broker, with or without TLS: one topic is one dataset."""
    return "pulsar://" + service_url.partition("://")[2].partition(",")[0].rstrip("/")
