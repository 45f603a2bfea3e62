"""### Prove that two clusters hold the same messages and subscriptions

1. **Freeze** — the source's end is taken once; on the target, exactly what came from there is compared.
2. **Read** — a Spark job reads both sides and compares digests per bucket; buckets that differ are read again and the
   first differing messages are named.
3. **Subscriptions** — what each of them has not read is compared on both sides: what would come again, or never.
   Up to 1,000 topics are done in this task, more by a Spark job. The switch `subscriptions` leaves this out.
4. **Verdict** — equal, different or inconclusive; never equal by default. The run is green only when both are equal.

Nothing is changed on either cluster. The page `docs/verify_clusters.md` says how to read a verdict.
"""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import Param, dag

from pulsar_fleet.airflow.params import connection_param, namespaces_param
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.runbooks import verification
from pulsar_fleet.airflow.spark import VerifyMessagesOperator, VerifySubscriptionsOperator

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
    "mode": Param(
        "full",
        type="string",
        enum=["full", "window", "sample", "incremental"],
        title="Mode",
        description="full compares all; window what was published between two times; sample pieces chosen by chance; "
        "incremental what came since the last proof in the ledger.",
    ),
    "window_from": Param(
        None,
        type=["null", "string"],
        format="date-time",
        title="Window: from",
        description="For window: publish time of the first messages, as 2026-11-21T08:00:00+00:00.",
    ),
    "window_to": Param(
        None,
        type=["null", "string"],
        format="date-time",
        title="Window: to",
        description="For window: publish time before which the last messages lie.",
    ),
    "sample_one_in": Param(
        10_000,
        type="integer",
        minimum=1,
        title="Sample: one in",
        description="For sample: a difference in one of so many messages of a topic is to be found …",
    ),
    "sample_probability": Param(
        0.99,
        type="number",
        exclusiveMinimum=0,
        exclusiveMaximum=1,
        title="Sample: probability",
        description="… with this probability.",
    ),
    "sample_seed": Param(
        1, type="integer", title="Sample: seed", description="Chooses the pieces; the same seed chooses the same ones."
    ),
    "compacted": Param(
        "auto",
        type="string",
        enum=["auto", "always", "never"],
        title="Compacted topics",
        description="When only the latest value of each key is compared; auto does so where either side has compacted "
        "the topic.",
    ),
    "max_bytes_per_second": Param(
        None,
        type=["null", "integer"],
        minimum=1,
        title="Bytes per second",
        description="How fast any one broker is read at most, over all tasks; nothing means no limit.",
    ),
    "examples": Param(
        20,
        type="integer",
        minimum=1,
        maximum=1000,
        title="Messages to name",
        description="How many differing messages are named per topic.",
    ),
    "subscriptions": Param(
        True,
        type="boolean",
        title="Compare subscriptions",
        description="Compare what each subscription has not read yet. Their consumers must not run meanwhile.",
    ),
}
JOBS = Path(__file__).parents[1] / "spark_jobs"


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
        application=str(JOBS / "verify_messages.py"),
        application_args=["--request", frozen["request"], "--result", frozen["result"]],
        name="verify-messages",
        source="{{ params.source }}",
        target="{{ params.target }}",
        driver_memory="1g",
    )
    subscriptions = VerifySubscriptionsOperator(
        task_id="compare_subscriptions",
        application=str(JOBS / "verify_subscriptions.py"),
        request=frozen["request"],
        result=frozen["subscriptions"],
        name="verify-subscriptions",
        source="{{ params.source }}",
        target="{{ params.target }}",
        driver_memory="1g",
    )
    verdict = verification.read_verdict(frozen=frozen)
    [compared, subscriptions] >> verdict >> verification.write_report()


verify_clusters()
