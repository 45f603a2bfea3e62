"""Let the topics of a read-only namespace follow their sources, and give it back its retention, without a question.

Everything that this adds is on the sources already; nothing is taken away.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pulsar_fleet.cluster.admin.call import bare, with_body
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.shadow_guard import INFINITE, is_infinite
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.preflight.findings import blockers
from pulsar_fleet.read_only.checks import check_serving
from pulsar_fleet.read_only.isolation import recorded_brokers
from pulsar_fleet.read_only.observe import observe, policies_for_readers, sources_served_in
from pulsar_fleet.read_only.plan import READ_ONLY, ReadOnlyPlan, plan_serving
from pulsar_fleet.read_only.recorded_calls import PROCEDURE, send_recorded
from pulsar_fleet.read_only.request import Request
from pulsar_fleet.read_only.state import Observed
from pulsar_fleet.read_only.steps import confirm, confirm_brokers, create_topics, link_topics, plan_for
from pulsar_fleet.read_only.upkeep.watch import restart_links, stopped_links

FOLLOW = f"{PROCEDURE}.follow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed(Document):
    """What a read-only namespace was given.

    :param restored: the namespace and the shadow topics that got back a retention of -1/-1.
    :param restarted: sources, or partitions of them, whose link had stopped and was started again.
    :param changes: partitions, schema versions, permissions and links that were added, and bundles that were moved to
        the namespace's own brokers.
    """

    namespace: NamespaceName
    restored: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    changes: int = 0

    def alarms(self) -> list[str]:
        """What people must act on, although it is restored."""
        return [
            f"{name} had lost its retention of -1/-1, which is restored. Read its sources from their oldest message: "
            "what a broker has deleted is lost. Then find out who changed it."
            for name in self.restored
        ]

    def text(self) -> str:
        """`acme/readers: 2 changes, nothing had lost its retention, no link had stopped`."""
        restored = f"the retention of {', '.join(self.restored)} is -1/-1 again" if self.restored else ""
        restarted = f"the links of {', '.join(self.restarted)} had stopped and work again" if self.restarted else ""
        return (
            f"{self.namespace}: {counted(self.changes, 'change')}, {restored or 'nothing had lost its retention'}, "
            f"{restarted or 'no link had stopped'}"
        )


async def follow_sources(admin: AdminClient, namespace: NamespaceName, lag_minutes: int, run: Run) -> Followed:
    """Restore lost retentions first, then add the partitions, schema versions, permissions and links that are missing.

    Links that have stopped are started again: the broker unloads their sources. A topic with a finding that stops a
    plan is left alone; the others go on. A second call changes nothing. The ledger has a run of its own for the
    namespace where something was changed. Calls: see `watch_namespace`.

    :raises NotFound: the namespace does not exist.
    :raises FleetError: a change failed; a second call does what is left.
    """
    own = replace(run, id=f"{run.id}/{namespace}")
    try:
        followed = await _follow(admin, namespace, lag_minutes, own)
    except FleetError:
        if own.ledger.run(own.id):
            own.ledger.finish_run(own.id, "failed")
        raise
    if own.ledger.run(own.id):
        own.ledger.finish_run(own.id, "succeeded")
    return followed


async def _follow(admin: AdminClient, namespace: NamespaceName, lag_minutes: int, run: Run) -> Followed:
    document = await policies_for_readers(admin, namespace)
    if READ_ONLY not in (document.get("properties") or {}):
        return Followed(namespace=namespace)
    restored = await _restore_namespace(admin, namespace, document.get("retention_policies"), run)
    sources = await sources_served_in(admin, namespace)
    if not sources:
        return Followed(namespace=namespace, restored=restored)
    brokers = recorded_brokers(document)
    request = Request(topics=sources, namespace=namespace, brokers=brokers, lag_minutes=lag_minutes)
    observed = await observe(admin, request)
    restored += await _restore_topics(admin, observed, run)
    ready = _without_problems(observed, request)
    request = replace(request, topics=tuple(source.topic for source in ready.sources))
    planned = plan_serving(ready, request, revokes=False)
    changes = len(planned.contents.changes) + len(planned.linking) + len(planned.moving)
    if changes:
        _begin(run)
        plan = plan_for(ready, request, follows=True)
        await create_topics(admin, plan, run)
        await confirm_brokers(admin, plan, run)
        await link_topics(admin, plan, run)
        await confirm(admin, plan)
    restarted = await _restart(admin, planned, run)
    return Followed(namespace=namespace, restored=restored, restarted=restarted, changes=changes)


async def _restart(admin: AdminClient, planned: ReadOnlyPlan, run: Run) -> tuple[str, ...]:
    stopped = await stopped_links(admin, [link for pair in planned.pairs for link in pair.stored])
    if stopped:
        _begin(run)
        await restart_links(admin, stopped, run)
    return tuple(str(source) for source, _ in stopped)


def _without_problems(observed: Observed, request: Request) -> Observed:
    stopped = {finding.resource for finding in blockers(check_serving(observed, request))}
    if str(request.namespace) in stopped:
        return replace(observed, sources=())
    ready = (
        source for source in observed.sources if not stopped & {str(source.topic), str(request.shadow(source.topic))}
    )
    return replace(observed, sources=tuple(ready))


async def _restore_namespace(
    admin: AdminClient, namespace: NamespaceName, retention: Json, run: Run
) -> tuple[str, ...]:
    if is_infinite(retention):
        return ()
    _begin(run)
    call = with_body("POST", f"/namespaces/{namespace.path}/retention", dict(INFINITE))
    await send_recorded(admin, run, call, resource=f"namespace {namespace}", before=retention, after=call.body)
    return (str(namespace),)


async def _restore_topics(admin: AdminClient, observed: Observed, run: Run) -> tuple[str, ...]:
    """Remove the retentions of shadow topics themselves, so that the one of their namespace is in effect."""
    lowered = [
        (shadow.topic, scope, retention)
        for shadow in observed.shadows.values()
        for scope, retention in shadow.retentions.items()
        if shadow.source and not is_infinite(retention)
    ]
    for topic, scope, retention in lowered:
        _begin(run)
        call = bare("DELETE", f"/{topic.path}/retention", isGlobal=str(scope == "global").lower())
        await send_recorded(admin, run, call, resource=f"{scope} retention of {topic}", before=retention)
    return tuple(dict.fromkeys(str(topic) for topic, _, _ in lowered))


def _begin(run: Run) -> None:
    run.ledger.start_run(run.id, FOLLOW, {})
