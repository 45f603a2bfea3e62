"""Gates of a migration: what must hold before anything changes (pure).

Each gate is a function from what was read to findings; all of them are evaluated, so that one run tells everything.
A gate that cannot be evaluated is a blocker, never a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pulsar_fleet.migration.preflight.gates import (
    brokers,
    clients,
    compatibility,
    flags,
    green,
    redirects,
    retention,
    topics,
)
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.preflight.findings import Finding, Severity

Evaluated = Callable[[View], Iterator[Finding]]

EVALUATED: tuple[Evaluated, ...] = (
    brokers.migration_check_runs_on_every_broker,
    brokers.resources_are_not_created_by_the_broker,
    brokers.everything_could_be_read,
    redirects.redirect_is_complete_and_green,
    redirects.nothing_is_stored_from_before,
    redirects.clients_are_let_in,
    flags.no_cluster_is_flagged,
    flags.no_other_namespace_is_flagged,
    flags.never_both_sides,
    flags.namespaces_are_there,
    flags.green_serves_the_namespaces,
    green.green_holds_what_blue_holds,
    green.roles_have_their_rights,
    green.green_is_not_in_use,
    compatibility.clusters_go_together,
    retention.green_keeps_messages_for_the_drain,
    retention.green_keeps_the_copy,
    topics.no_transactions_are_used,
    topics.messages_in_flight_can_be_lost,
    topics.delayed_messages_are_told,
    topics.subscriptions_are_read,
    topics.replicators_are_connected,
    topics.nobody_replicates_into_blue,
    topics.nothing_is_copied_and_redirected,
    topics.functions_are_told,
    clients.clients_follow_a_redirect,
    clients.readers_read_on,
    clients.pattern_consumers_are_told,
)


def check(view: View) -> tuple[Finding, ...]:
    """Every finding of every gate, blockers first; no blocker means: go."""
    found = [finding for gate in EVALUATED for finding in gate(view)]
    return tuple(sorted(found, key=lambda one: (one.severity is not Severity.BLOCKER, one.id, one.resource)))
