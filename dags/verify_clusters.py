"""### Prove that two clusters hold the same messages

1. **Freeze** — the source's end is taken once; on the target, exactly what came from there is compared.
2. **Read** — a Spark job reads both sides and compares digests per bucket; buckets that differ are read again and the
   first differing messages are named.
3. **Verdict** — equal, different or inconclusive; never equal by default. The run is green only when it is equal.

Nothing is changed on either cluster. The page `docs/verify_clusters.md` says how to read a verdict.
"""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import Param, dag

from pulsar_fleet.airflow.params import connection_param, namespaces_param
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.runbooks import verification
from pulsar_fleet.airflow.spark import VerifyMessagesOperator

PARAMS = {
    "source": connection_param("pulsar_blue", "Source", "Connection of the cluster that holds the originals."),
    "target": connection_param("pulsar_green", "Target", "Connection of the cluster that holds the copy."),
    "namespaces": namespaces_param("What to compare, one tenant/namespace per line."),
    "mapping": Param(
        "auto",
        type="string",
        enum=["auto", "replicated", "whole"],
        title="Mapping",
        description="replicated compares what geo-replication brought, by source position; whole compares everything.",
    ),
    "engine": Param(
        "auto",
        type="string",
        enum=["auto", "client", "entry"],
        title="Engine",
        description="entry reads whole entries of replicated topics, client messages; auto takes what costs less.",
    ),
    "examples": Param(
        20,
        type="integer",
        minimum=1,
        maximum=1000,
        title="Messages to name",
        description="How many differing messages are named per topic.",
    ),
}


@dag(
    schedule=None,
    params=PARAMS,
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "verification"],
)
def verify_clusters():
    frozen = verification.freeze_bounds(request=verification.read_request())
    compared = VerifyMessagesOperator(
        task_id="compare_messages",
        application=str(Path(__file__).parents[1] / "spark_jobs" / "verify_messages.py"),
        application_args=["--request", frozen["request"], "--result", frozen["result"]],
        name="verify-messages",
        source="{{ params.source }}",
        target="{{ params.target }}",
        driver_memory="1g",
    )
    verdict = verification.read_verdict(frozen=frozen)
    compared >> verdict >> verification.write_report()


verify_clusters()
