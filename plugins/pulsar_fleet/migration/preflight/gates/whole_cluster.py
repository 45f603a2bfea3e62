"""The flag of a whole cluster: every namespace moves, and its brokers' own topics are terminated too (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.migration.model import Strategy
from pulsar_fleet.migration.preflight.gates.catalogue import Owner, blocks, warns
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.preflight.findings import Finding

_NOT_NEEDED = blocks(
    "cluster-flag-not-needed",
    Owner.RUN,
    "The flag of the cluster cannot be taken back for one namespace, and was measured with brokers of Pulsar 3.0 only.",
    never_waived="{blue}'s brokers could not be restarted any more, and what they do was not measured.",
)
_LEFT_OUT = blocks(
    "namespace-left-out",
    Owner.RUN,
    "The flag of the cluster terminates its topics and redirects its clients to {green}, which does not have them.",
    never_waived="its clients stop, and what they publish is not stored.",
)
_NO_RESTART = warns(
    "blue-must-not-restart",
    Owner.BLUE,
    "The flag of the cluster terminates the brokers' own topics: health checks fail, and a broker that restarts serves "
    "no topic.",
)


def cluster_flag_is_needed(view: View) -> Iterator[Finding]:
    """Brokers that can redirect single namespaces never redirect all at once."""
    if view.flags_cluster and not view.blue.unflagged:
        yield _NOT_NEEDED.finding(
            f"cluster {view.blue.name}",
            f"its brokers run Pulsar {view.blue.snapshot.oldest_version()}, which can redirect single namespaces",
            f"set the strategy auto, or {Strategy.REPLICATE}.",
        )


def every_namespace_moves(view: View) -> Iterator[Finding]:
    """The flag of a cluster applies to all its namespaces, also to those without topics."""
    if not view.flags_cluster:
        return
    if view.survey.left_out is None:
        yield _LEFT_OUT.finding(
            f"cluster {view.blue.name}",
            "its namespaces could not be listed",
            "give the connection a superuser's token, or run again.",
        )
    for name in view.survey.left_out or ():
        yield _LEFT_OUT.finding(
            name,
            f"exists on {view.blue.name}, and is not part of this run",
            "add it to 'namespaces' (--namespaces; 'all' names every namespace), or delete it if nobody uses it.",
        )


def blue_is_not_restarted(view: View) -> Iterator[Finding]:
    """The broker's health check publishes to a topic that is redirected; without policies no topic loads (observed)."""
    if view.flags_cluster:
        yield _NO_RESTART.finding(
            f"cluster {view.blue.name}",
            f"{Strategy.WHOLE_CLUSTER} flags the whole cluster",
            "before the cut-over, turn off every automatic restart and every load balancer's check that calls "
            "/admin/v2/brokers/health; restart no broker until its consumers have read everything.",
        )
