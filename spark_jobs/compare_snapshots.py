"""Compare stored snapshots of clusters, as a Spark job.

    spark-submit --py-files pulsar_fleet-….zip compare_snapshots.py --request URI --result URI

A request has the references of two snapshots in the artefact store; its result says whether they are equal, how many
resources of each kind differ, and describes the first differences. A request of the kind "fleet" has a snapshot of each
cluster of a fleet; its result has every divergent resource. All are JSON documents. Several pairs of --request and
--result share one session. The job calls no cluster and needs no credentials. Executors need the packages pyarrow,
universal-pathlib, sqlalchemy and pydantic. A difference is a result: the exit status is 0. The status is 1 if a
comparison could not be carried out; then there is no result.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession
from upath import UPath

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.planning.comparison import comparison_text
from pulsar_fleet.policy_sync.merge.divergence import DivergenceRequest, find_divergent, is_divergence_request
from pulsar_fleet.verification.job import run_job
from pulsar_fleet.verification.snapshots.compare import CompareRequest, compare_snapshots
from pulsar_fleet.verification.snapshots.spark_backend import in_tasks, spread_over


def open_session() -> SparkSession:
    """A Spark session."""
    return SparkSession.builder.appName("compare-snapshots").getOrCreate()


def answer(session: SparkSession, content: bytes, result: UPath) -> str:
    """Compare two snapshots, or those of a fleet, and write the result."""
    compare = _fleet if is_divergence_request(content) else _pair
    document, text = compare(content, session)
    result.write_bytes(json.dumps(document, indent=1).encode())
    return text


def _pair(content: bytes, session: SparkSession) -> tuple[JsonObject, str]:
    comparison = compare_snapshots(CompareRequest.from_bytes(content), spread_over(session))
    return comparison.to_json(), comparison_text(comparison)


def _fleet(content: bytes, session: SparkSession) -> tuple[JsonObject, str]:
    document = find_divergent(
        DivergenceRequest.from_bytes(content), lambda batches, work: in_tasks(session, batches, work)
    )
    return document, f"{len(document['divergent']):,} resources are divergent in {document['compared']:,} namespaces"


if __name__ == "__main__":
    run_job(sys.argv[1:], "stored snapshots", open_session, answer)
