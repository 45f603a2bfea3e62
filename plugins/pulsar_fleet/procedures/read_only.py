"""Topics that are served read-only, by shadow topics or by a copy on another cluster; see docs/serve_read_only.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pulsar_fleet.cluster.text import counted
from pulsar_fleet.procedures import replication
from pulsar_fleet.procedures.procedure import Checked, Done, Ending, Procedure, Session, Step
from pulsar_fleet.settings.read_only import SERVE_READ_ONLY

if TYPE_CHECKING:
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.preflight.findings import Planned
    from pulsar_fleet.read_only.plan import ReadOnlyPlan
    from pulsar_fleet.replication.clusters import Clusters

STEPS = ("create_topics", "confirm_brokers", "link_topics", "remove_topics")
"""The steps that change the cluster, in their order."""
_NOT_OF_A_COPY = "A copy on another cluster has no such step."
_NOT_OF_A_REMOVAL = "Topics are taken away: nothing is served."


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

    if session.conf["other_cluster"]:
        return await _plan_copy(session)
    planned = await steps.plan(_admin(session), Request.of(session.conf))
    calls = steps.call_lines(planned.plan)
    plain = ["\n".join(planned.plan.cost)]
    plain += ["\n".join(["The calls, in their order:", *(f"  {call}" for call in calls)])] if calls else []
    return Checked(
        headline=planned.headline,
        changes=planned.plan.changes(),
        findings=planned.findings,
        plan=planned.plan,
        text=planned.text,
        plain="\n\n".join(filter(None, plain)),
    )


async def create_topics(session: Session) -> str | Done:
    """Load the sources, then create the namespace and the shadow topics; nothing is linked yet."""
    from pulsar_fleet.read_only import steps

    if session.conf["other_cluster"]:
        return await _create_copy(session)
    if session.conf["remove"]:
        return _NOT_OF_A_REMOVAL
    return replication.done(await steps.create_topics(_admin(session), _planned(session.run), session.run))


async def confirm_brokers(session: Session) -> str | Done:
    """With brokers of its own: fail if a shadow topic is not on one of them; bundles that are elsewhere are moved."""
    from pulsar_fleet.read_only import steps
    from pulsar_fleet.report.progress import progress_lines

    if session.conf["other_cluster"]:
        return _NOT_OF_A_COPY
    if session.conf["remove"]:
        return _NOT_OF_A_REMOVAL
    run, progress = session.run, progress_lines("topics", session.say)
    return replication.done(await steps.confirm_brokers(_admin(session), _planned(run), run, progress=progress))


async def link_topics(session: Session) -> str | Done:
    """Link the shadow topics, if their namespace keeps everything."""
    from pulsar_fleet.read_only import steps

    if session.conf["other_cluster"]:
        return await replication.start_links(_of_replication(session))
    if session.conf["remove"]:
        return _NOT_OF_A_REMOVAL
    return replication.done(await steps.link_topics(_admin(session), _planned(session.run), session.run))


async def confirm_links(session: Session) -> str | Done:
    """Fail if a link is not alive, or a reader gets no message although the source has some."""
    from pulsar_fleet.read_only import steps
    from pulsar_fleet.report.progress import progress_lines

    if session.conf["other_cluster"]:
        return await replication.confirm_links(_of_replication(session))
    if session.conf["remove"]:
        return _NOT_OF_A_REMOVAL
    progress = progress_lines("links", session.say)
    confirmed = await steps.confirm(_admin(session), _planned(session.run), progress=progress)
    return Done(f"{counted(confirmed.links, 'link')} of {counted(confirmed.topics, 'topic')} are alive.", confirmed)


async def remove_topics(session: Session) -> str | Done:
    """With *remove*: take the shadow topics away in the only order in which their sources lose nothing."""
    from pulsar_fleet.read_only import steps

    if session.conf["other_cluster"]:
        return _NOT_OF_A_COPY
    if not session.conf["remove"]:
        return "Only with *remove*."
    return replication.done(await steps.remove_topics(_admin(session), _planned(session.run), session.run))


def end(run: Run, conf: JsonObject, failed: Mapping[str, str]) -> Ending:
    """Findings, changes and links."""
    from pulsar_fleet.ledger.approval import read_approval
    from pulsar_fleet.planning.apply.outcome import StepResult
    from pulsar_fleet.procedures.runner import may_have_changed, planned_numbers, result_of, results_of
    from pulsar_fleet.read_only import steps
    from pulsar_fleet.read_only.links import ConfirmedServing
    from pulsar_fleet.report.read_only import outcome_line, read_only_report

    if conf["other_cluster"]:
        return replication.end(run, conf, failed, {"create_topics": "apply_contents", "link_topics": "start_links"})
    planned, results = _planned(run), results_of(run, STEPS, StepResult)
    confirmed = result_of(run, "confirm_links", ConfirmedServing)
    changed = may_have_changed(run)
    report = read_only_report(planned, results, confirmed, read_approval(run), failed, changed=changed)
    calls = steps.call_lines(planned.plan)
    document: JsonObject = {
        "planned": {**planned_numbers(run), "remove": planned.plan.remove, "calls": len(calls)},
        "findings": [finding.to_json() for finding in planned.findings],
        "calls": calls,
        **{name: result.to_json() for name, result in results.items()},
        **({"confirmed": confirmed.to_json()} if confirmed else {}),
    }
    if failed or not results:
        return Ending(report=report, text="", document=document)
    kept = [f"  kept: {line}" for result in results.values() for line in result.kept]
    return Ending(
        report=report,
        text="\n".join([outcome_line(planned, results, confirmed, changed=changed), *kept]),
        document=document,
    )


def undo(run: Run, conf: JsonObject) -> tuple[str, ...]:
    """The commands that take back a copy; shadow topics are taken away by *remove*."""
    return replication.undo(run, conf) if conf["other_cluster"] else ()


def _admin(session: Session) -> AdminClient:
    return session.clusters["cluster"]


def _planned(run: Run) -> Planned[ReadOnlyPlan]:
    from pulsar_fleet.procedures.runner import read_planned
    from pulsar_fleet.read_only.plan import ReadOnlyPlan

    return read_planned(run, ReadOnlyPlan)


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
        planned = await steps.plan(clusters, Request.of(copy.conf))
    return replication.checked(copy, planned, tuple(lines))


async def _create_copy(session: Session) -> Done:
    """Create what the other cluster lacks, then deny producing there; nothing is replicated yet."""
    from pulsar_fleet.read_only.other_cluster import CopyRequest, deny_producing
    from pulsar_fleet.replication import steps
    from pulsar_fleet.replication.request import Request

    copy, run = _of_replication(session), session.run
    async with replication.open_groups(copy) as clusters:
        stage = await steps.apply_contents(clusters, replication.planned_in(run), Request.of(copy.conf), run)
        denied = await deny_producing(_target(clusters), CopyRequest.of(session.conf), run)
    return replication.done(replace(stage, changes=stage.changes + denied.changes))


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
    records=True,
    undo=undo,
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
