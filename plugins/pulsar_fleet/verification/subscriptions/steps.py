"""The steps of comparing subscriptions: between frozen bounds, here or in a Spark job, and recorded."""

from __future__ import annotations

from upath import UPath

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.verification.request import Progress, VerifyRequest
from pulsar_fleet.verification.steps import FOLDER
from pulsar_fleet.verification.subscriptions.compare import compare_pairs
from pulsar_fleet.verification.subscriptions.evaluate import assemble
from pulsar_fleet.verification.subscriptions.report import subscription_summary
from pulsar_fleet.verification.subscriptions.verdict import SubscriptionVerification

RESULT = "subscriptions-result.json"
VERDICT = "subscriptions.json"
SCOPE = "subscriptions of {}"

TOPICS_HERE = 1_000
"""Up to so many topics are compared in one process, at about 15 ms of CPU each: a Spark session costs more to open."""

ENTRIES_HERE = 1_000_000
"""The same for the entries of copies that a producer made, since these may have to be read."""


def fits_here(request: VerifyRequest) -> bool:
    """Whether one process is done with it before a Spark session is open."""
    written = sum(len(pair.source) + len(pair.target) for pair in request.pairs if not pair.publish_time)
    return len(request.pairs) <= TOPICS_HERE and written <= ENTRIES_HERE


async def compare_subscriptions(
    source: AdminClient, target: AdminClient, request: VerifyRequest, progress: Progress | None = None
) -> SubscriptionVerification:
    """Compare here what each subscription has not read, between the bounds that the request froze.

    Nothing is consumed and no subscription is touched; again gives the same while they stand still.
    """
    return assemble(request, await compare_pairs(source, target, request, progress))


async def compare_here(
    source: ClusterConnection, target: ClusterConnection, request_uri: str, result_uri: str
) -> SubscriptionVerification:
    """Do in this process what the Spark job does: read the request, compare, write the result.

    An earlier result is removed first, so that none is ever stale.
    """
    result = UPath(result_uri)
    result.unlink(missing_ok=True)
    request = VerifyRequest.from_bytes(UPath(request_uri).read_bytes())
    async with AdminClient(source) as here, AdminClient(target) as there:
        found = await compare_subscriptions(here, there, request)
    result.write_bytes(found.to_bytes())
    return found


def result_uri(run: Run, folder: str = FOLDER) -> str:
    """Where a comparison of this run's request has to leave its result."""
    return str(run.artefacts.folder(run.id) / folder / RESULT)


def conclude(run: Run, uri: str, folder: str = FOLDER) -> SubscriptionVerification:
    """Take the result that a comparison left, and record it. `NotFound` if there is none."""
    try:
        content = UPath(uri).read_bytes()
    except OSError as error:
        raise NotFound(f"The comparison of subscriptions left no result at {uri}: {error}. See its log.") from error
    found = SubscriptionVerification.from_bytes(content)
    record(run, found, folder)
    return found


def record(run: Run, found: SubscriptionVerification, folder: str = FOLDER) -> Reference:
    """Keep the verdicts: the document as an artefact, one line per namespace in the ledger. Again replaces both."""
    document = run.artefacts.write(run.id, f"{folder}/{VERDICT}", found.to_bytes())
    for each in found.namespaces:
        run.ledger.record_verdict(
            run.id,
            SCOPE.format(each.namespace),
            verdict=each.verdict,
            messages=each.unread,
            summary=subscription_summary(each),
            artefact=document.to_json(),
        )
    return document
