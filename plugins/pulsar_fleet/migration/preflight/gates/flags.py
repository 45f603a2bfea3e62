"""Migration flags: none on a cluster, none on both sides, none that a stored redirect would activate (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.text import listed
from pulsar_fleet.migration.cutover.redirect import has_addresses
from pulsar_fleet.migration.preflight.gates.catalogue import Owner, blocks
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.migration.stats.facts import FlaggedNamespace
from pulsar_fleet.preflight.findings import Finding

_BLUE_FLAGGED = blocks(
    "blue-is-migrated",
    Owner.BLUE,
    "The whole cluster is flagged: every topic on it is terminated as soon as a redirect is stored.",
    never_waived="topics of namespaces that {green} does not have would be terminated.",
)
_GREEN_FLAGGED = blocks(
    "green-is-migrated",
    Owner.GREEN,
    "{green} redirects its own clients: they are redirected again, or back and forth until they time out.",
    never_waived="no client could work on either cluster.",
)
_ELSEWHERE = blocks(
    "flag-left-elsewhere",
    Owner.BLUE,
    "Storing a redirect terminates the topics of every flagged namespace within a second, and redirects their clients.",
    never_waived="topics that {green} does not have would be terminated, or clients redirected to the wrong cluster.",
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
    "{green} deletes the topics of a namespace whose cluster list does not name {green}.",
    never_waived="the topics on {green} are deleted with the messages written to them.",
)
LISTS = ("replication_clusters", "allowed_clusters")


def no_cluster_is_flagged(view: View) -> Iterator[Finding]:
    """The flag of a cluster applies to all its namespaces; brokers set it only together with a redirect (observed)."""
    for gate, cluster in ((_BLUE_FLAGGED, view.blue), (_GREEN_FLAGGED, view.green)):
        if (cluster.redirect or {}).get("migrated"):
            stored = ", ".join(sorted(cluster.redirect_addresses.values())) or "no address"
            yield gate.finding(
                f"cluster {cluster.name}",
                f"migrated = true on {cluster.name}, redirect to {stored}",
                f"choose another cluster: the clients of {cluster.name} are redirected, and its loaded topics are "
                "terminated. Without the flag these clients would hang.",
            )


def moved_to_green(view: View) -> tuple[FlaggedNamespace, ...]:
    """Other namespaces that were moved to green: a redirect to green is right for them, and their flags must stay."""
    flagged = view.survey.flagged or ()
    return tuple(row for row in flagged if row.was_moved and row.is_on_green and not row.lacking)


def flagged_elsewhere(view: View) -> Iterator[FlaggedNamespace]:
    """Other flagged namespaces, for which a redirect to green is wrong, or is not known to be right."""
    moved = moved_to_green(view)
    return (namespace for namespace in view.survey.flagged or () if namespace not in moved)


def no_other_namespace_is_flagged(view: View) -> Iterator[Finding]:
    """Flags that were set without a redirect take effect when a redirect is stored (observed: after 0.8 s).

    The flag of a namespace that was moved must stay: without it a new producer through blue times out, and a new
    consumer reads nothing from a terminated topic (observed).
    """
    if not view.redirected or has_addresses(view.blue.redirect, view.survey.redirect_probe.document):
        return
    if view.survey.flagged is None:
        yield _FLAGS_UNKNOWN.finding(
            f"cluster {view.blue.name}",
            "the namespaces of the cluster could not all be read",
            "give the connection a superuser's token, or run again.",
        )
    blue, green = view.blue.name, view.green.name
    for namespace in flagged_elsewhere(view):
        evidence, remedy, is_cleared = _state_of(view, namespace)
        path = f"/admin/v2/namespaces/{NamespaceName.parse(namespace.name).path}/migration"
        yield _ELSEWHERE.finding(
            namespace.name,
            f"migrated = true on {blue}, and it is not part of this run; {evidence}",
            remedy.format(blue=blue, green=green),
            call=f"{blue}: POST {path} false" if is_cleared else "",
        )


def _state_of(view: View, namespace: FlaggedNamespace) -> tuple[str, str, bool]:
    """Evidence, remedy, and whether its flag may be cleared: only where no client was ever redirected by it."""
    stored = ", ".join(sorted(set(view.blue.redirect_addresses.values())))
    if namespace.was_moved:
        by = f"run {namespace.moved_by} moved it" if namespace.moved_by else "its topics are terminated"
        where = f", and {view.green.name} lacks {listed(namespace.lacking)}" if namespace.lacking else ""
        return f"{by}{where}", _KEEP_MOVED, False
    if namespace.terminated is None:
        return "its topics could not be read", _KEEP_UNREAD, False
    if view.blue.has_redirect:
        return f"{view.blue.name} redirects its clients to {stored or 'addresses that are not known'}", _KEEP_SET, False
    return (
        f"no topic of it is terminated, and {view.blue.name} has no redirect: the flag has no effect yet",
        _CLEAR,
        True,
    )


_CLEAR = "clear it on {blue}, or move the namespace with this run."
_KEEP_MOVED = (
    "leave its flag: its clients were redirected, and without the flag they would hang on terminated topics. Set "
    "`green` to the cluster to which it was moved; if that is {green}, store the redirect to {green} on {blue} again."
)
_KEEP_UNREAD = "leave its flag until its topics can be read, then run again: without the flag its clients may hang."
_KEEP_SET = (
    "leave its flag until you know who set it: its clients may be on that cluster already. If nothing of the namespace "
    "is there, clear the flag, or move the namespace with this run."
)


def no_namespace_is_flagged_twice(view: View) -> Iterator[Finding]:
    """A flag on both clusters; the checks that all procedures share report a single flag.

    The cluster with terminated topics, or else the only one with a redirect, sends its clients to the other one.
    """
    sides = (view.green, view.blue)
    for facts in view.moving:
        if (facts.blue or {}).get("migrated") and (facts.green or {}).get("migrated"):
            ended = [side.name for side in sides if side.has_terminated(facts.namespace)]
            unread = any(str(facts.namespace) in note.resource for side in sides for note in side.unread)
            redirecting = [side.name for side in sides if side.has_redirect]
            sending = ended or redirecting
            cleared = [] if unread or len(sending) > 1 else [side.name for side in sides if side.name not in sending]
            yield _BOTH.finding(
                str(facts.namespace),
                f"migrated = true on both clusters; terminated topics: {' and '.join(ended) or 'none'}; redirects: "
                f"{' and '.join(redirecting) or 'none'}",
                f"clear the flag on {', then on '.join(cleared)}, and on no other cluster."
                if cleared
                else "leave both flags and take the namespace out of the run. Find out with verify_clusters which "
                "cluster its clients use; the flag of the other one must stay.",
                call="; ".join(
                    f"{name}: POST /admin/v2/namespaces/{facts.namespace.path}/migration false" for name in cleared
                ),
            )


def namespaces_exist(view: View) -> Iterator[Finding]:
    """The broker accepts the flag of a namespace that does not exist (observed: 204)."""
    for facts in view.survey.namespaces:
        if facts.blue is None:
            yield _MISSING.finding(
                str(facts.namespace), f"not on {view.blue.name}", "correct 'namespaces' (--namespaces)."
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
                    f"add {view.green.name} to {key} of the namespace on {view.green.name}, and leave the other "
                    "clusters in it.",
                )
