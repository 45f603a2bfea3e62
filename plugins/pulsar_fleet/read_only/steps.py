"""The steps of serving topics read-only, in the order of the DAG; each can be repeated."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.shadows.hazards import is_infinite
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.plan import Action
from pulsar_fleet.preflight.context import call_text
from pulsar_fleet.preflight.findings import Finding, blockers, count_line
from pulsar_fleet.read_only.brokers.owners import confirm_owners
from pulsar_fleet.read_only.checks import check_removal, check_serving, check_setup
from pulsar_fleet.read_only.links import (
    ConfirmedServing,
    Progress,
    change_shadow_list,
    confirm_links,
    confirm_reading,
    load_sources,
    require_linked,
    sent_by_broker,
)
from pulsar_fleet.read_only.observe import observe, with_own_policies
from pulsar_fleet.read_only.plan import ReadOnlyPlan, StoredReadOnlyPlan, move_call, plan_removal, plan_serving
from pulsar_fleet.read_only.recorded_calls import apply_recorded, send_recorded
from pulsar_fleet.read_only.removal import release_brokers, remove_namespace, remove_pair
from pulsar_fleet.read_only.request import Request
from pulsar_fleet.read_only.results import Served
from pulsar_fleet.read_only.state import Observed

CONFIRM_SECONDS = 60.0


async def plan(admin: AdminClient, request: Request, run: Run) -> StoredReadOnlyPlan:
    """Read the cluster, check every topic, and store the plan with its findings; it loads the sources.

    Calls: one for each broker, up to eight for each topic, three for each of its partitions; two, and one pass over the
    topic policies, for each namespace of a source.
    """
    observed = await observe(admin, request)
    return plan_for(observed if request.remove else await with_own_policies(admin, observed), request, run)


def plan_for(observed: Observed, request: Request, run: Run, *, follows: bool = False) -> StoredReadOnlyPlan:
    """Store the plan for what was read of a cluster.

    :param follows: it is served already: no right is taken, and a migration that copies the namespace is no reason.
    """
    if request.remove:
        return _stored(plan_removal(observed, request), check_removal(observed, request), run)
    check = check_serving if follows else check_setup
    return _stored(plan_serving(observed, request, revokes=not follows), check(observed, request), run)


async def create_topics(admin: AdminClient, planned: StoredReadOnlyPlan, run: Run) -> Served:
    """Load the sources that are linked next, then make the namespace and the shadow topics as their sources are.

    :raises Unavailable: a change failed, and a second call may succeed.
    :raises InvalidRequest: a change failed, was refused, or found another value than the plan was made from.
    """
    stored, began, calls = read_plan(run.artefacts, planned), time.monotonic(), admin.calls
    if not stored.remove:
        await load_sources(admin, stored.linking)
    if not stored.contents.empty:
        # Partitions cannot be taken from a topic; a shadow topic with all of them can be taken away.
        allow = {change.id for change in stored.contents.changes if change.action is Action.GROW}
        await apply_recorded(admin, stored.contents, run, "contents", allow=allow)
    return _result(admin, began, calls, len(stored.contents.changes))


async def confirm_brokers(
    admin: AdminClient,
    planned: StoredReadOnlyPlan,
    run: Run,
    *,
    seconds: float = CONFIRM_SECONDS,
    progress: Progress | None = None,
) -> Served:
    """Where the namespace has brokers of its own: wait until each shadow topic or partition is on one of them.

    Bundles that are elsewhere are unloaded. A second call moves nothing.

    :raises PreconditionFailed: a topic is elsewhere after `seconds`; the message names it and its broker.
    """
    stored, began, calls = read_plan(run.artefacts, planned), time.monotonic(), admin.calls
    if stored.remove or not stored.brokers:
        return _result(admin, began, calls, 0)

    async def move(bundle: str, broker: str, topics: Sequence[TopicName]) -> None:
        resource, before = f"bundle {stored.namespace}/{bundle}", await admin.owner(topics[0])
        call = move_call(stored.namespace, bundle, broker)
        await send_recorded(admin, run, call, resource=resource, before=before, after=broker)

    topics = [shadow for pair in stored.pairs for _, shadow in pair.stored]
    moved = await confirm_owners(admin, stored.brokers, topics, move, seconds=seconds, progress=progress)
    return _result(admin, began, calls, moved)


async def link_topics(admin: AdminClient, planned: StoredReadOnlyPlan, run: Run) -> Served:
    """Link the shadow topics that are not linked, after a last look at the retention of their namespace.

    The list of each source is read again: shadow topics that others have linked since the plan stay in it.

    :raises PreconditionFailed: the namespace does not keep everything.
    """
    stored, began, calls = read_plan(run.artefacts, planned), time.monotonic(), admin.calls
    if stored.remove:
        return _result(admin, began, calls, 0)
    document = await admin.namespace(stored.namespace) or {}
    if not is_infinite(document.get("retention_policies")):
        raise PreconditionFailed(
            f"The retention of {stored.namespace} is {document.get('retention_policies')}, not -1/-1: data of the "
            "sources would be deleted. Nothing was linked; set it, then run this step again.",
            cluster=admin.connection.name,
        )
    linked = [await change_shadow_list(admin, pair, run, links=True, again=pair.links) for pair in stored.pairs]
    return _result(admin, began, calls, sum(linked))


async def confirm(
    admin: AdminClient,
    planned: StoredReadOnlyPlan,
    run: Run,
    *,
    seconds: float = CONFIRM_SECONDS,
    progress: Progress | None = None,
) -> ConfirmedServing:
    """Wait until every link is alive, and read a message from each shadow topic whose source has some.

    :raises PreconditionFailed: a link is not alive in time, or a reader gets nothing; the message says what to do.
    """
    stored, began, calls = read_plan(run.artefacts, planned), time.monotonic(), admin.calls
    pairs = () if stored.remove else stored.pairs
    await require_linked(admin, pairs)
    links = await confirm_links(admin, pairs, seconds=seconds, progress=progress)
    read = await confirm_reading(admin, pairs)
    sent = await sent_by_broker(admin, pairs)
    return ConfirmedServing(
        topics=len(pairs),
        links=links,
        read=read,
        sent=sent,
        calls=admin.calls - calls,
        seconds=round(time.monotonic() - began, 1),
    )


async def remove_topics(admin: AdminClient, planned: StoredReadOnlyPlan, run: Run) -> Served:
    """Take the shadow topics away, one after the other, then the namespace if nothing is left in it.

    :raises FleetError: a shadow topic could not be taken away; those after it were not touched, no source lost data.
    """
    stored, began, calls = read_plan(run.artefacts, planned), time.monotonic(), admin.calls
    if not stored.remove:
        return _result(admin, began, calls, 0)
    for pair in stored.pairs:
        await remove_pair(admin, pair, run)
    kept: list[str] = []
    if not await remove_namespace(admin, stored.namespace, run) and await admin.namespace(stored.namespace):
        kept.append(f"the namespace {stored.namespace}: topics are left in it, or this procedure did not create it")
    await release_brokers(admin, stored.namespace, run)
    return _result(admin, began, calls, len(stored.pairs), kept)


def read_plan(artefacts: Artefacts, planned: StoredReadOnlyPlan) -> ReadOnlyPlan:
    """The stored plan."""
    return ReadOnlyPlan.from_json(artefacts.read_json(planned.plan))


def read_findings(artefacts: Artefacts, planned: StoredReadOnlyPlan) -> tuple[Finding, ...]:
    """The stored findings, blockers first."""
    return tuple(Finding.from_json(document) for document in artefacts.read_json(planned.findings))


def call_lines(stored: ReadOnlyPlan) -> list[str]:
    """Every call that changes or loads something, in its order, as a person would send it."""
    return [call_text(stored.cluster, call) for call in stored.calls()]


def _stored(planned: ReadOnlyPlan, findings: Sequence[Finding], run: Run) -> StoredReadOnlyPlan:
    stopping = len(blockers(findings))
    lines = call_lines(planned)
    changes = len(planned.changes())
    verb = "no longer served" if planned.remove else "served"
    headline = (
        f"{counted(len(planned.pairs), 'topic')} {verb} read-only in {planned.namespace} on {planned.cluster}: "
        f"{counted(changes, 'change')}, {counted(len(lines), 'call')}; {count_line(findings)}."
    )
    cost = ["\n".join(["**What it costs**", "", *(f"* {line}" for line in planned.cost)])] if planned.cost else []
    text = "\n\n".join([headline, *cost, "\n".join(["**The calls**, in their order:", "", "```", *lines, "```"])])
    documents: list[JsonObject] = [finding.to_json() for finding in findings]
    return StoredReadOnlyPlan(
        plan=run.artefacts.write_json(run.id, "plan.json", planned.to_json()),
        findings=run.artefacts.write_json(run.id, "findings.json", documents),
        text=run.artefacts.write(run.id, "plan.md", text.encode()),
        id=run.id.rpartition("/")[2],
        headline=headline,
        remove=planned.remove,
        changes=changes,
        calls=len(lines),
        blockers=stopping,
        warnings=len(findings) - stopping,
    )


def _result(admin: AdminClient, began: float, calls: int, changes: int, kept: Sequence[str] = ()) -> Served:
    return Served(
        changes=changes,
        calls=admin.calls - calls,
        seconds=round(time.monotonic() - began, 1),
        kept=tuple(kept),
    )
