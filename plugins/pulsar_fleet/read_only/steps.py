"""The steps of serving topics read-only, in the order of the DAG; each can be repeated."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.shadow_guard import is_infinite
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.apply.outcome import StepResult
from pulsar_fleet.planning.plan import Action
from pulsar_fleet.preflight.findings import Planned
from pulsar_fleet.read_only.checks import check_serving, check_setup
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
from pulsar_fleet.read_only.owners import confirm_owners
from pulsar_fleet.read_only.plan import (
    ServingPlan,
    described,
    move_call,
    plan_serving,
)
from pulsar_fleet.read_only.recorded_calls import apply_recorded, send_recorded, step_result
from pulsar_fleet.read_only.request import Request
from pulsar_fleet.read_only.state import Observed

CONFIRM_SECONDS = 60.0


async def plan(admin: AdminClient, request: Request) -> Planned[ServingPlan]:
    """Read the cluster, check every topic, and plan what is missing; it loads the sources.

    Calls: one for each broker, up to eight for each topic, three for each of its partitions; two, and one pass over the
    topic policies, for each namespace of a source.
    """
    return plan_for(await with_own_policies(admin, await observe(admin, request)), request)


def plan_for(observed: Observed, request: Request, *, follows: bool = False) -> Planned[ServingPlan]:
    """The plan for what was read of a cluster.

    :param follows: it is served already: no right is taken, and a migration that copies the namespace is no reason.
    """
    check, planned = check_serving if follows else check_setup, plan_serving(observed, request, revokes=not follows)
    return described(planned, check(observed, request), planned.cost)


async def create_topics(admin: AdminClient, planned: Planned[ServingPlan], run: Run) -> StepResult:
    """Load the sources that are linked next, then make the namespace and the shadow topics as their sources are.

    :raises Unavailable: a change failed, and a second call may succeed.
    :raises InvalidRequest: a change failed, was refused, or found another value than the plan was made from.
    """
    stored, began, calls = planned.plan, time.monotonic(), admin.calls
    await load_sources(admin, stored.linking)
    if not stored.contents.empty:
        # Partitions cannot be taken from a topic; a shadow topic with all of them can be taken away.
        allow = {change.id for change in stored.contents.changes if change.action is Action.GROW}
        await apply_recorded(admin, stored.contents, run, "contents", allow=allow)
    return step_result(admin, began, calls, len(stored.contents.changes))


async def confirm_brokers(
    admin: AdminClient,
    planned: Planned[ServingPlan],
    run: Run,
    *,
    seconds: float = CONFIRM_SECONDS,
    progress: Progress | None = None,
) -> StepResult:
    """Where the namespace has brokers of its own: wait until each shadow topic or partition is on one of them.

    Bundles that are elsewhere are unloaded. A second call moves nothing.

    :raises PreconditionFailed: a topic is elsewhere after `seconds`; the message names it and its broker.
    """
    stored, began, calls = planned.plan, time.monotonic(), admin.calls
    if not stored.brokers:
        return step_result(admin, began, calls, 0)

    async def move(bundle: str, broker: str, topics: Sequence[TopicName]) -> None:
        resource, before = f"bundle {stored.namespace}/{bundle}", await admin.owner(topics[0])
        call = move_call(stored.namespace, bundle, broker)
        await send_recorded(admin, run, call, resource=resource, before=before, after=broker)

    topics = [shadow for pair in stored.pairs for _, shadow in pair.stored]
    moved = await confirm_owners(admin, stored.brokers, topics, move, seconds=seconds, progress=progress)
    return step_result(admin, began, calls, moved)


async def link_topics(admin: AdminClient, planned: Planned[ServingPlan], run: Run) -> StepResult:
    """Link the shadow topics that are not linked, after a last look at the retention of their namespace.

    The list of each source is read again: shadow topics that others have linked since the plan stay in it.

    :raises PreconditionFailed: the namespace does not keep everything.
    """
    stored, began, calls = planned.plan, time.monotonic(), admin.calls
    document = await admin.namespace(stored.namespace) or {}
    if not is_infinite(document.get("retention_policies")):
        raise PreconditionFailed(
            f"The retention of {stored.namespace} is {document.get('retention_policies')}, not -1/-1: data of the "
            "sources would be deleted. Nothing was linked; set it, then run this step again.",
            cluster=admin.connection.name,
        )
    linked = [await change_shadow_list(admin, pair, run, links=True, again=pair.links) for pair in stored.pairs]
    return step_result(admin, began, calls, sum(linked))


async def confirm(
    admin: AdminClient,
    planned: Planned[ServingPlan],
    *,
    seconds: float = CONFIRM_SECONDS,
    progress: Progress | None = None,
) -> ConfirmedServing:
    """Wait until every link is alive, and read a message from each shadow topic whose source has some.

    :raises PreconditionFailed: a link is not alive in time, or a reader gets nothing; the message says what to do.
    """
    stored, began, calls = planned.plan, time.monotonic(), admin.calls
    await require_linked(admin, stored.pairs)
    links = await confirm_links(admin, stored.pairs, seconds=seconds, progress=progress)
    read = await confirm_reading(admin, stored.pairs)
    sent = await sent_by_broker(admin, stored.pairs)
    return ConfirmedServing(
        topics=len(stored.pairs),
        links=links,
        read=read,
        sent=sent,
        calls=admin.calls - calls,
        seconds=round(time.monotonic() - began, 1),
    )
