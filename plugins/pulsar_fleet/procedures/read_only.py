"""Topics that are served read-only, by shadow topics or by a copy on another cluster; see docs/serve_read_only.md."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
    from pulsar_fleet.read_only.other_cluster import CopyRequest
    from pulsar_fleet.read_only.plan import ReadOnlyPlan, ServingPlan
    from pulsar_fleet.read_only.removal import RemovalPlan
    from pulsar_fleet.read_only.request import Request
    from pulsar_fleet.replication.clusters import Clusters

STEPS = ("create_topics", "confirm_brokers", "link_topics", "remove_topics")
"""The steps that change the cluster, in their order."""
Work = Callable[[Session], Awaitable[Done]]


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a run is for: shadow topics, their removal, or a copy on another cluster.

    :param steps: by name, those that it has.
    :param without: what each other step says.
    """

    validate: Callable[[JsonObject], object]
    plan: Callable[[Session], Awaitable[Checked]]
    steps: Mapping[str, Work]
    without: str


def _kind(conf: JsonObject) -> _Kind:
    if conf["other_cluster"]:
        return COPY
    return REMOVAL if conf["remove"] else SERVING


async def _step(name: str, session: Session) -> str | Done:
    kind = _kind(session.conf)
    return await kind.steps[name](session) if name in kind.steps else kind.without


def validate(conf: JsonObject) -> None:
    """Refuse names that cannot be served, and what only shadow topics or only a copy have."""
    _kind(conf).validate(conf)


async def plan_changes(session: Session) -> Checked:
    """Check every topic, and plan what is missing or is taken away; nothing is changed."""
    return await _kind(session.conf).plan(session)


async def create_topics(session: Session) -> str | Done:
    """Load the sources, then create the namespace and the shadow topics; nothing is linked yet."""
    return await _step("create_topics", session)


async def confirm_brokers(session: Session) -> str | Done:
    """With brokers of its own: fail if a shadow topic is not on one of them; bundles that are elsewhere are moved."""
    return await _step("confirm_brokers", session)


async def link_topics(session: Session) -> str | Done:
    """Link the shadow topics, if their namespace keeps everything."""
    return await _step("link_topics", session)


async def confirm_links(session: Session) -> str | Done:
    """Fail if a link is not alive, or a reader gets no message although the source has some."""
    return await _step("confirm_links", session)


async def remove_topics(session: Session) -> str | Done:
    """With *remove*: take the shadow topics away in the only order in which their sources lose nothing."""
    return await _step("remove_topics", session)


def end(run: Run, conf: JsonObject, failed: Mapping[str, str]) -> Ending:
    """Findings, changes and links."""
    from pulsar_fleet.ledger.approval import read_approval
    from pulsar_fleet.planning.apply.outcome import StepResult
    from pulsar_fleet.procedures.runner import may_have_changed, planned_numbers, result_of, results_of
    from pulsar_fleet.read_only.links import ConfirmedServing
    from pulsar_fleet.report.read_only import outcome_line, read_only_report

    if conf["other_cluster"]:
        return replication.end(run, conf, failed, {"create_topics": "apply_contents", "link_topics": "start_links"})
    planned: Planned[ReadOnlyPlan] = _removal(run) if conf["remove"] else _serving(run)
    results = results_of(run, STEPS, StepResult)
    confirmed = result_of(run, "confirm_links", ConfirmedServing)
    changed = may_have_changed(run)
    report = read_only_report(planned, results, confirmed, read_approval(run), failed, changed=changed)
    calls = planned.plan.call_lines()
    document: JsonObject = {
        "planned": {**planned_numbers(run), "remove": conf["remove"], "calls": len(calls)},
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


def _request(conf: JsonObject) -> Request:
    from pulsar_fleet.read_only.request import Request

    return Request.of(conf)


def _admin(session: Session) -> AdminClient:
    return session.clusters["cluster"]


def _checked(planned: Planned[ReadOnlyPlan], cost: Sequence[str] = ()) -> Checked:
    calls = planned.plan.call_lines()
    plain = ["\n".join(cost)]
    plain += ["\n".join(["The calls, in their order:", *(f"  {call}" for call in calls)])] if calls else []
    return Checked(
        headline=planned.headline,
        changes=planned.plan.changes(),
        findings=planned.findings,
        plan=planned.plan,
        text=planned.text,
        plain="\n\n".join(filter(None, plain)),
    )


def _serving(run: Run) -> Planned[ServingPlan]:
    from pulsar_fleet.procedures.runner import read_planned
    from pulsar_fleet.read_only.plan import ServingPlan

    return read_planned(run, ServingPlan)


async def _plan_serving(session: Session) -> Checked:
    from pulsar_fleet.read_only import steps

    planned = await steps.plan(_admin(session), _request(session.conf))
    return _checked(planned, planned.plan.cost)


async def _create_shadows(session: Session) -> Done:
    from pulsar_fleet.read_only import steps

    return replication.done(await steps.create_topics(_admin(session), _serving(session.run), session.run))


async def _confirm_owners(session: Session) -> Done:
    from pulsar_fleet.read_only import steps
    from pulsar_fleet.report.progress import progress_lines

    run, progress = session.run, progress_lines("topics", session.say)
    return replication.done(await steps.confirm_brokers(_admin(session), _serving(run), run, progress=progress))


async def _link_shadows(session: Session) -> Done:
    from pulsar_fleet.read_only import steps

    return replication.done(await steps.link_topics(_admin(session), _serving(session.run), session.run))


async def _confirm_shadows(session: Session) -> Done:
    from pulsar_fleet.read_only import steps
    from pulsar_fleet.report.progress import progress_lines

    progress = progress_lines("links", session.say)
    confirmed = await steps.confirm(_admin(session), _serving(session.run), progress=progress)
    return Done(f"{counted(confirmed.links, 'link')} of {counted(confirmed.topics, 'topic')} are alive.", confirmed)


SERVING = _Kind(
    _request,
    _plan_serving,
    {
        "create_topics": _create_shadows,
        "confirm_brokers": _confirm_owners,
        "link_topics": _link_shadows,
        "confirm_links": _confirm_shadows,
    },
    "Only with *remove*.",
)


def _removal(run: Run) -> Planned[RemovalPlan]:
    from pulsar_fleet.procedures.runner import read_planned
    from pulsar_fleet.read_only.removal import RemovalPlan

    return read_planned(run, RemovalPlan)


async def _plan_removal(session: Session) -> Checked:
    from pulsar_fleet.read_only import removal

    return _checked(await removal.plan(_admin(session), _request(session.conf)))


async def _remove_shadows(session: Session) -> Done:
    from pulsar_fleet.read_only import removal

    return replication.done(await removal.remove_topics(_admin(session), _removal(session.run), session.run))


REMOVAL = _Kind(
    _request, _plan_removal, {"remove_topics": _remove_shadows}, "Topics are taken away: nothing is served."
)


def _copy_request(conf: JsonObject) -> CopyRequest:
    from pulsar_fleet.read_only.other_cluster import CopyRequest

    return CopyRequest.of(conf)


def _of_replication(session: Session) -> Session:
    """The settings and the clusters by which `replication` makes the copy."""
    named = session.connections
    groups = {"clusters": named["cluster"], "receive_only": named["other_cluster"], "leaving": ()}
    conf = {**_copy_request(session.conf).replication(), "dry_run": session.conf["dry_run"]}
    return replace(session, conf=conf, connections=groups)


async def _plan_copy(session: Session) -> Checked:
    """Refuse where applications produce on the other cluster, then plan the copy; its text begins with its cost."""
    from pulsar_fleet.read_only.other_cluster import check_copy
    from pulsar_fleet.replication import steps
    from pulsar_fleet.replication.request import Request

    copy = _of_replication(session)
    async with replication.open_groups(copy) as clusters:
        source = clusters.admins[clusters.topology.members[0]]
        lines = await check_copy(source, _target(clusters), _copy_request(session.conf))
        planned = await steps.plan(clusters, Request.of(copy.conf))
    return replication.checked(copy, planned, tuple(lines))


async def _create_copy(session: Session) -> Done:
    """Create what the other cluster lacks, then deny producing there; nothing is replicated yet."""
    from pulsar_fleet.read_only.other_cluster import deny_producing
    from pulsar_fleet.replication import steps
    from pulsar_fleet.replication.request import Request

    copy, run = _of_replication(session), session.run
    async with replication.open_groups(copy) as clusters:
        stage = await steps.apply_contents(clusters, replication.planned_in(run), Request.of(copy.conf), run)
        denied = await deny_producing(_target(clusters), _copy_request(session.conf), run)
    return replication.done(replace(stage, changes=stage.changes + denied.changes))


async def _link_copy(session: Session) -> Done:
    return await replication.start_links(_of_replication(session))


async def _confirm_copy(session: Session) -> Done:
    return await replication.confirm_links(_of_replication(session))


def _target(clusters: Clusters) -> AdminClient:
    (target,) = clusters.topology.receive_only
    return clusters.admins[target]


COPY = _Kind(
    _copy_request,
    _plan_copy,
    {"create_topics": _create_copy, "link_topics": _link_copy, "confirm_links": _confirm_copy},
    "A copy on another cluster has no such step.",
)
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
