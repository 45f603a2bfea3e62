"""Migration flags: none on a cluster, none on both sides, none that a stored redirect would activate (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.migration.cutover.redirect import has_addresses
from pulsar_fleet.migration.preflight.gates.catalogue import Owner, blocks
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.preflight.findings import Finding

_BLUE_FLAGGED = blocks(
    "blue-is-migrated",
    Owner.BLUE,
    "The whole cluster is flagged: every topic on it is terminated as soon as a redirect is stored.",
    never_waived="topics of namespaces that green does not have would be terminated.",
)
_GREEN_FLAGGED = blocks(
    "green-is-migrated",
    Owner.GREEN,
    "Green redirects its own clients: they are redirected again, or back and forth until they time out.",
    never_waived="no client could work on either cluster.",
)
_ELSEWHERE = blocks(
    "flag-left-elsewhere",
    Owner.BLUE,
    "Storing a redirect terminates the topics of every flagged namespace within a second, also of other namespaces.",
    never_waived="topics that green does not have would be terminated.",
)
_FLAGS_UNKNOWN = blocks(
    "flags-unknown",
    Owner.RUN,
    "Storing a redirect terminates the topics of every flagged namespace; which are flagged is not known.",
)
_BOTH = blocks(
    "both-sides-flagged",
    Owner.RUN,
    "Clients are redirected back and forth between the clusters until they time out.",
    never_waived="no client could work on either cluster.",
)
_MISSING = blocks(
    "namespace-missing",
    Owner.RUN,
    "The broker accepts the flag for it; topics of a namespace created later would be terminated from the start.",
    never_waived="nothing exists to move.",
)
_NOT_IN_LIST = blocks(
    "green-not-in-list",
    Owner.GREEN,
    "Green deletes the topics of a namespace whose cluster list does not name green.",
    never_waived="the topics on green are deleted with the messages written to them.",
)
LISTS = ("replication_clusters", "allowed_clusters")


def no_cluster_is_flagged(view: View) -> Iterator[Finding]:
    """The flag of a cluster applies to all its namespaces."""
    for gate, cluster in ((_BLUE_FLAGGED, view.blue), (_GREEN_FLAGGED, view.green)):
        if (cluster.redirect or {}).get("migrated"):
            yield gate.finding(
                f"cluster {cluster.name}",
                f"migrated = true on {cluster.name}",
                "clear the cluster's flag.",
                call=f"{cluster.name}: POST /admin/v2/clusters/{cluster.name}/migrate?migrated=false",
            )


def no_other_namespace_is_flagged(view: View) -> Iterator[Finding]:
    """Flags that were set without a redirect take effect when a redirect is stored (observed: after 0.8 s)."""
    if has_addresses(view.blue.redirect, view.survey.redirect_probe.document):
        return
    if view.survey.flagged is None:
        yield _FLAGS_UNKNOWN.finding(
            f"cluster {view.blue.name}",
            "the namespaces of the cluster could not all be read",
            "give the connection a superuser's token, or run again.",
        )
    for name in view.survey.flagged or ():
        yield _ELSEWHERE.finding(
            name,
            f"migrated = true on {view.blue.name}, and it is not part of this run",
            f"clear it on {view.blue.name}, or move the namespace with this run.",
            call=f"{view.blue.name}: POST /admin/v2/namespaces/{NamespaceName.parse(name).path}/migration false",
        )


def no_namespace_is_flagged_twice(view: View) -> Iterator[Finding]:
    """A flag on both clusters; the checks that all procedures share report a single flag."""
    for facts in view.moving:
        if (facts.blue or {}).get("migrated") and (facts.green or {}).get("migrated"):
            yield _BOTH.finding(
                str(facts.namespace),
                f"migrated = true on {view.blue.name} and on {view.green.name}",
                f"clear both flags, {view.green.name}'s first.",
            )


def namespaces_exist(view: View) -> Iterator[Finding]:
    """The broker accepts the flag of a namespace that does not exist (observed: 204)."""
    for facts in view.survey.namespaces:
        if facts.blue is None:
            yield _MISSING.finding(
                str(facts.namespace), f"not on {view.blue.name}", "correct 'namespaces' in the run's configuration."
            )


def green_serves_the_namespaces(view: View) -> Iterator[Finding]:
    """A cluster deletes the topics of a namespace whose cluster list does not name it; checks both lists."""
    for facts in view.moving:
        for key in LISTS:
            listed = (facts.green or {}).get(key) or []
            if listed and view.green.name not in listed:
                yield _NOT_IN_LIST.finding(
                    str(facts.namespace),
                    f"{key} on {view.green.name} = {', '.join(listed)}",
                    f"add {view.green.name} to {key} of the namespace on {view.green.name}.",
                )
