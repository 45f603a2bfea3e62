"""Topics that are served read-only, by shadow topics or by a copy on another cluster; see docs/serve_read_only.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pulsar_fleet.procedures import replication
from pulsar_fleet.procedures.procedure import Checked, Ending, Procedure, Session, Step
from pulsar_fleet.settings.read_only import SERVE_READ_ONLY

if TYPE_CHECKING:
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.read_only.links import ConfirmedServing
    from pulsar_fleet.read_only.plan import StoredReadOnlyPlan
    from pulsar_fleet.read_only.results import Served
    from pulsar_fleet.replication.clusters import Clusters

STEPS = ("create_topics", "confirm_brokers", "link_topics", "remove_topics")
"""The steps that change the cluster, in their order."""
_PLANNED, _STEP, _CONFIRMED = "read-only.json", "served/{}.json", "served/confirmed.json"
_NOT_OF_A_COPY = "A copy on another cluster has no such step."


def validate(conf: JsonObject) -> None:
    """Refuse names that cannot be served, and what only shadow topics or only a copy have."""
    from pulsar_fleet.read_only.other_cluster import CopyRequest
    from pulsar_fleet.read_only.request import Request

    if conf["other_cluster"]:
        CopyRequest.of(conf)
    else:
        Request.of(conf)


async def plan_changes(session: Session) -> Checked:
    """Check every topic, and plan what is missing or is taken away; nothing is changed."""
    from pulsar_fleet.read_only import steps
    from pulsar_fleet.read_only.request import Request

    run = session.run
    if session.conf["other_cluster"]:
        return await _plan_copy(session)
    planned = await steps.plan(session.clusters["cluster"], Request.of(session.conf), run)
    run.artefacts.write_json(run.id, _PLANNED, planned.to_json())
    stored = steps.read_plan(run.artefacts, planned)
    calls = steps.call_lines(stored)
    plain = ["\n".join(stored.cost)]
    plain += ["\n".join(["The calls, in their order:", *(f"  {call}" for call in calls)])] if calls else []
    return Checked(
        headline=planned.headline,
        changes=stored.changes(),
        findings=steps.read_findings(run.artefacts, planned),
        text=run.artefacts.read(planned.text).decode(),
        plain="\n\n".join(filter(None, plain)),
    )


async def create_topics(session: Session) -> str:
    """Load the sources, then create the namespace and the shadow topics; nothing is linked yet."""
    from pulsar_fleet.read_only import steps

    if session.conf["other_cluster"]:
        return await _create_copy(session)
    planned = _planned(session.run)
    return _store(session.run, "create_topics", await steps.create_topics(_admin(session), planned, session.run))


async def confirm_brokers(session: Session) -> str:
    """With brokers of its own: fail if a shadow topic is not on one of them; bundles that are elsewhere are moved."""
    from pulsar_fleet.read_only import steps
    from pulsar_fleet.report.progress import progress_lines

    if session.conf["other_cluster"]:
        return _NOT_OF_A_COPY
    run, progress = session.run, progress_lines("topics", session.say)
    moved = await steps.confirm_brokers(_admin(session), _planned(run), run, progress=progress)
    return _store(run, "confirm_brokers", moved)


async def link_topics(session: Session) -> str:
    """Link the shadow topics, if their namespace keeps everything."""
    from pulsar_fleet.read_only import steps

    if session.conf["other_cluster"]:
        return await replication.start_links(_of_replication(session))
    return _store(
        session.run, "link_topics", await steps.link_topics(_admin(session), _planned(session.run), session.run)
    )


async def confirm_links(session: Session) -> str:
    """Fail if a link is not alive, or a reader gets no message although the source has some."""
    from pulsar_fleet.cluster.text import counted
    from pulsar_fleet.read_only import steps
    from pulsar_fleet.report.progress import progress_lines

    if session.conf["other_cluster"]:
        return await replication.confirm_links(_of_replication(session))
    run, progress = session.run, progress_lines("links", session.say)
    confirmed = await steps.confirm(_admin(session), _planned(run), run, progress=progress)
    run.artefacts.write_json(run.id, _CONFIRMED, confirmed.to_json())
    return f"{counted(confirmed.links, 'link')} of {counted(confirmed.topics, 'topic')} are alive."


async def remove_topics(session: Session) -> str:
    """With *remove*: take the shadow topics away in the only order in which their sources lose nothing."""
    from pulsar_fleet.read_only import steps

    if session.conf["other_cluster"]:
        return _NOT_OF_A_COPY
    return _store(
        session.run, "remove_topics", await steps.remove_topics(_admin(session), _planned(session.run), session.run)
    )


def end(run: Run, conf: JsonObject, failed: Mapping[str, str]) -> Ending:
    """Findings, changes and links."""
    from pulsar_fleet.ledger.approval import read_approval
    from pulsar_fleet.procedures.runner import is_planned, read_changes, read_findings
    from pulsar_fleet.read_only import steps
    from pulsar_fleet.report.planned_run import unplanned_report
    from pulsar_fleet.report.read_only import outcome_line, read_only_report

    if conf["other_cluster"]:
        return replication.end(run, conf, failed, {"apply_contents": "create_topics", "start_links": "link_topics"})
    if not is_planned(run):
        return Ending(report=unplanned_report(failed), text="", document={})
    planned, findings, done = _planned(run), read_findings(run), _served(run)
    confirmed = _confirmed(run, failed)
    report = read_only_report(planned, read_changes(run), findings, done, confirmed, read_approval(run), failed)
    document: JsonObject = {
        "planned": planned.to_json(),
        "findings": [finding.to_json() for finding in findings],
        "calls": steps.call_lines(steps.read_plan(run.artefacts, planned)),
        **{name: served.to_json() for name, served in done.items()},
    }
    if confirmed is None or "remove_topics" not in done:
        return Ending(report=report, text="", document=document)
    kept = [f"  kept: {line}" for served in done.values() for line in served.kept]
    return Ending(
        report=report,
        text="\n".join([outcome_line(planned, done, confirmed), *kept]),
        document={**document, "confirmed": confirmed.to_json()},
    )


def _admin(session: Session) -> AdminClient:
    return session.clusters["cluster"]


def _planned(run: Run) -> StoredReadOnlyPlan:
    from pulsar_fleet.read_only.plan import StoredReadOnlyPlan

    return StoredReadOnlyPlan.from_json(run.stored(_PLANNED))


def _store(run: Run, name: str, served: Served) -> str:
    from pulsar_fleet.cluster.text import counted

    run.artefacts.write_json(run.id, _STEP.format(name), served.to_json())
    return f"{counted(served.changes, 'change')} in place, {counted(served.calls, 'call')}."


def _served(run: Run) -> dict[str, Served]:
    from pulsar_fleet.read_only.results import Served

    stored = {name: run.stored(_STEP.format(name)) for name in STEPS}
    return {name: Served.from_json(document) for name, document in stored.items() if document}


def _confirmed(run: Run, failed: Mapping[str, str]) -> ConfirmedServing | None:
    from pulsar_fleet.read_only.links import ConfirmedServing

    stored = run.stored(_CONFIRMED)
    return ConfirmedServing.from_json(stored) if stored and "confirm_links" not in failed else None


def _of_replication(session: Session) -> Session:
    """The settings and the clusters by which `replication` makes the copy."""
    from pulsar_fleet.read_only.other_cluster import CopyRequest

    named = session.connections
    groups = {"clusters": named["cluster"], "receive_only": named["other_cluster"], "leaving": ()}
    conf = {**CopyRequest.of(session.conf).replication(), "dry_run": session.conf["dry_run"]}
    return replace(session, conf=conf, connections=groups)


async def _plan_copy(session: Session) -> Checked:
    """Refuse where applications produce on the other cluster, then plan the copy; its text begins with its cost."""
    from pulsar_fleet.read_only.other_cluster import CopyRequest, check_copy
    from pulsar_fleet.replication import steps
    from pulsar_fleet.replication.request import Request

    copy = _of_replication(session)
    async with replication.open_groups(copy) as clusters:
        source = clusters.admins[clusters.topology.members[0]]
        lines = await check_copy(source, _target(clusters), CopyRequest.of(session.conf))
        planned = await steps.plan(clusters, Request.of(copy.conf), session.run)
    return replication.checked(copy, planned, tuple(lines))


async def _create_copy(session: Session) -> str:
    """Create what the other cluster lacks, then deny producing there; nothing is replicated yet."""
    from pulsar_fleet.read_only.other_cluster import CopyRequest, deny_producing
    from pulsar_fleet.replication import steps
    from pulsar_fleet.replication.request import Request

    copy, run = _of_replication(session), session.run
    async with replication.open_groups(copy) as clusters:
        stage = await steps.apply_contents(clusters, replication.planned_in(run), Request.of(copy.conf), run)
        denied = await deny_producing(_target(clusters), CopyRequest.of(session.conf), run)
    undo = (f"{run.id}/permissions",) if denied.changes else ()
    stage = replace(stage, changes=stage.changes + denied.changes, undo=(*undo, *stage.undo))
    return replication.store_stage(run, "apply_contents", stage)


def _target(clusters: Clusters) -> AdminClient:
    (target,) = clusters.topology.receive_only
    return clusters.admins[target]


READ_ONLY = Procedure(
    name="serve_read_only",
    summary="Serve topics read-only by shadow topics, beside their owner.",
    clusters={
        "cluster": "Cluster that has the topics: admin URL or Airflow connection id.",
        "other_cluster": "Cluster that gets a copy.",
    },
    own_settings=SERVE_READ_ONLY,
    opening="read_request",
    checks="plan_changes",
    validate=validate,
    check=plan_changes,
    work=(
        Step("create_topics", create_topics),
        Step("confirm_brokers", confirm_brokers),
        Step("link_topics", link_topics),
        Step("confirm_links", confirm_links, reads=True),
        Step("remove_topics", remove_topics),
    ),
    end=end,
)
