"""The watches of what dead runs have left and of read-only topics, as procedures; see docs/watch_overrides.md and
docs/watch_read_only.md."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pulsar_fleet.procedures.procedure import Ending, Procedure, Session, Skipped, Step, Unmet
from pulsar_fleet.settings.migration import WATCH
from pulsar_fleet.settings.read_only import WATCH_READ_ONLY

if TYPE_CHECKING:
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.cluster.connection import ClusterConnection
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.cluster.names import NamespaceName
    from pulsar_fleet.ledger.run import Run


async def judged(
    session: Session, looks: Iterable[Callable[[], Awaitable[list[str]]]], fine: str, *, one_cluster: bool = False
) -> str | Unmet:
    """What the looks have found, if it is anything; one that fails holds up no other.

    :param one_cluster: all are at the same one: if it does not answer, it is not asked again.
    :raises Unavailable: a cluster did not answer, and nothing was found on the others: a retry may answer it all.
    """
    from pulsar_fleet.cluster.errors import FleetError, Unavailable

    found: list[str] = []
    errors: list[FleetError] = []
    for look in looks:
        try:
            texts = await look()
        except FleetError as error:
            errors.append(error)
            # With a status it has answered, for one topic.
            if one_cluster and isinstance(error, Unavailable) and error.status is None:
                break
            continue
        for text in texts:
            # At once: what it has restored no later look finds.
            session.say(text)
        found += texts
    told = [*dict.fromkeys([*found, *map(str, errors)])]
    # Of what was found a retry would find nothing any more, and nobody would hear of it.
    if errors and not found and all(isinstance(error, Unavailable) for error in errors):
        raise Unavailable("\n".join(told))
    return Unmet("\n".join(told)) if told else fine


async def _on(cluster: ClusterConnection, look: Callable[[AdminClient], Awaitable[list[str]]]) -> list[str]:
    from pulsar_fleet.cluster.admin.client import AdminClient

    async with AdminClient(cluster) as admin:
        return await look(admin)


def _ending(fine: str) -> Callable[[Run, JsonObject, Mapping[str, str]], Ending]:
    def end(run: Run, conf: JsonObject, failed: Mapping[str, str]) -> Ending:  # noqa: ARG001
        from pulsar_fleet.report.failure import watch_report

        report = watch_report(failed, fine)
        # A run that found nothing needs no page.
        return Ending(report=report, text=report.markdown(), document={"failed": list(failed)}, stored=False)

    return end


async def restore_dead_runs(session: Session) -> str | Skipped | Unmet:
    """Restore what dead runs left on each cluster; fail if there was anything, so that people hear of it."""
    from pulsar_fleet.cluster.text import command_line
    from pulsar_fleet.migration.prepare.dead_runs import find_overrides, restore_overrides

    async def watch(admin: AdminClient) -> list[str]:
        left = await find_overrides(admin)
        session.say(left.text())
        if not left.needs_restoration:
            return []
        if not session.conf["restore"]:
            command = command_line("restore", admin.connection.argument)
            return [f"{left.text()}\nRestore what a dead run left with: {command}"]
        restored = await restore_overrides(admin, unattended=True)
        done = restored.restored or restored.replicating or restored.draining
        return [f"{left.text()}\n{restored.text()}"] if done else []

    if not (clusters := session.connections["clusters"]):
        return Skipped(WATCH.unnamed("No cluster is watched"))
    looks = [partial(_on, cluster, watch) for cluster in clusters]
    return await judged(session, looks, "No run has left anything.")


async def find_unmigrated(session: Session) -> str | Skipped | Unmet:
    """Fail if a retired cluster has a namespace that is not migrated: its clients stay there."""
    from pulsar_fleet.cluster.text import counted, listed
    from pulsar_fleet.migration.scope import unmigrated_namespaces

    async def unmigrated(admin: AdminClient) -> list[str]:
        if not (names := await unmigrated_namespaces(admin)):
            return []
        return [
            f"{admin.connection.name} is retired and has {counted(len(names), 'namespace')} that no migration has "
            f"moved: {listed(names)}. Clients stay there. Migrate it with migrate_namespaces; or delete it, if nobody "
            "uses it."
        ]

    if not (retired := session.connections["retired"]):
        return Skipped(WATCH.unnamed("No cluster is retired"))
    looks = [partial(_on, cluster, unmigrated) for cluster in retired]
    return await judged(session, looks, "Every namespace is migrated.")


async def check_read_only(session: Session) -> str | Unmet:
    """Let the shadow topics follow their sources; fail if data of a source will be deleted, or readers lose messages.

    A retry follows and reads again.
    """
    from pulsar_fleet.cluster.names import parse_namespaces

    namespaces = parse_namespaces(session.conf["namespaces"])
    looks = [
        look
        for namespace in namespaces
        # Followed first, so that what is read is what readers have by then; one that cannot follow is read too.
        for look in (partial(_follow, session, namespace), partial(_read, session, namespace))
    ]
    return await judged(session, looks, "Nothing is wrong with what is served read-only.", one_cluster=True)


async def _follow(session: Session, namespace: NamespaceName) -> list[str]:
    from pulsar_fleet.read_only.upkeep.follow import follow_sources

    if not session.conf["follow"]:
        return []
    minutes = session.conf["lag_minutes"]
    followed = await follow_sources(session.clusters["cluster"], namespace, minutes, session.run)
    session.say(followed.text())
    return [*followed.alarms()]


async def _read(session: Session, namespace: NamespaceName) -> list[str]:
    from pulsar_fleet.read_only.upkeep.watch import alarms, watch_namespace

    topics, findings = await watch_namespace(session.clusters["cluster"], namespace, session.conf["lag_minutes"])
    for line in (*(topic.text() for topic in topics), *(finding.text() for finding in findings)):
        session.say(line)
    return [finding.text() for finding in alarms(findings)]


OVERRIDE_WATCH = Procedure(
    name="watch_overrides",
    summary="Restore what a dead run left on a cluster, and find namespaces that stay on a retired one.",
    clusters={
        "clusters": "Old and new clusters of the migrations.",
        "retired": "Clusters whose namespaces have all been migrated.",
    },
    own_settings=WATCH.declared,
    opening="read_request",
    idle=lambda conf: "" if conf["clusters"] or conf["retired"] else WATCH.unnamed("No cluster is watched"),
    changes=lambda conf: bool(conf["restore"]),
    # It restores what holds up applications.
    urgent=True,
    work=(
        Step("restore_dead_runs", restore_dead_runs),
        Step("find_unmigrated", find_unmigrated, reads=True, beside=True, clusters=("retired",)),
    ),
    end=_ending("No watched cluster has anything of a dead run, and no retired one a namespace that is not migrated."),
)

READ_ONLY_WATCH = Procedure(
    name="watch_read_only",
    summary="Let shadow topics follow their sources, and find what makes readers lose messages.",
    clusters={"cluster": "Cluster that serves the topics: admin URL or Airflow connection id."},
    own_settings=WATCH_READ_ONLY.declared,
    validate=WATCH_READ_ONLY.require_cluster,
    idle=WATCH_READ_ONLY.idle_without_namespaces("No namespace is watched"),
    changes=lambda conf: bool(conf["follow"]),
    in_one_task=True,
    work=(Step("check_read_only", check_read_only),),
    end=_ending("Nothing is wrong with what is served read-only."),
)
