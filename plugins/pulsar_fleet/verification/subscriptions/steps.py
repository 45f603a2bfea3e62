"""The steps of a comparison of subscriptions: compare between frozen bounds, here or in a Spark job, and record."""

from __future__ import annotations

from upath import UPath

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.ledger.artefacts import Reference, read_job_result
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.verification.request import FOLDER, Progress, VerifyRequest
from pulsar_fleet.verification.subscriptions.compare import compare_pairs
from pulsar_fleet.verification.subscriptions.report import subscription_summary
from pulsar_fleet.verification.subscriptions.verdict import SubscriptionVerification, assemble

RESULT = "subscriptions-result.json"
VERDICT = "subscriptions.json"
SCOPE = "subscriptions of {}"

TOPICS_HERE = 1_000
"""The most topics to compare in one process, at about 15 ms of CPU each: opening a Spark session costs more."""

ENTRIES_HERE = 1_000_000
"""The most entries, of copies that producers made, to compare in one process: they may have to be read."""


def fits_in_process(request: VerifyRequest) -> bool:
    """Whether one process compares the request faster than a Spark session opens."""
    pairs = request.logs
    written = sum(len(pair.source) + len(pair.target) for pair in pairs if not pair.publish_time)
    return len(pairs) <= TOPICS_HERE and written <= ENTRIES_HERE


async def compare_subscriptions(
    source: AdminClient, target: AdminClient, request: VerifyRequest, progress: Progress | None = None
) -> SubscriptionVerification:
    """Compare the unread messages of each subscription in this process, between the request's frozen bounds.

    Consumes nothing and changes no subscription; a second call gives the same while no cursor moves.
    """
    return assemble(request, await compare_pairs(source, target, request, progress))


async def compare_in_process(
    source: ClusterConnection,
    target: ClusterConnection,
    request_uri: str,
    result_uri: str,
    progress: Progress | None = None,
) -> SubscriptionVerification:
    """Run the Spark job in this process: read the request, compare, write the result.

    An earlier result is removed first, so that a failure leaves no stale result.
    """
    result = UPath(result_uri)
    result.unlink(missing_ok=True)
    request = VerifyRequest.from_bytes(UPath(request_uri).read_bytes())
    async with AdminClient(source) as source_admin, AdminClient(target) as target_admin:
        verification = await compare_subscriptions(source_admin, target_admin, request, progress)
    result.write_bytes(verification.to_bytes())
    return verification


def result_uri(run: Run, folder: str = FOLDER) -> str:
    """The URI of the result for a request of this run."""
    return str(run.artefacts.folder(run.id) / folder / RESULT)


def conclude(run: Run, uri: str, folder: str = FOLDER) -> SubscriptionVerification:
    """Read the result of a comparison and record it. `NotFound` without a result."""
    verification = SubscriptionVerification.from_bytes(read_job_result(uri, "comparison of subscriptions"))
    record(run, verification, folder)
    return verification


def record(run: Run, verification: SubscriptionVerification, folder: str = FOLDER) -> Reference:
    """Record the verdicts as an artefact and a ledger row for each namespace; a second call replaces them."""
    document = run.artefacts.write(run.id, f"{folder}/{VERDICT}", verification.to_bytes())
    for namespace in verification.namespaces:
        run.ledger.record_verdict(
            run.id,
            SCOPE.format(namespace.namespace),
            verdict=namespace.verdict,
            messages=namespace.unread,
            summary=subscription_summary(namespace),
            artefact=document.to_json(),
        )
    return document
