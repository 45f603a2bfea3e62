"""Gates of a migration: what must hold before anything changes (pure).

Each gate is a function from the survey to findings; all gates are evaluated, so that one run reports all findings.
A gate that cannot be evaluated is a blocker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pulsar_fleet.migration.preflight.gates import (
    brokers,
    clients,
    compaction,
    compatibility,
    copy_rates,
    green,
    own_clients,
    redirects,
    retention,
    scheduler,
    topics,
    unmovable,
    whole_cluster,
)
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.preflight.findings import Finding, blockers_first

GateCheck = Callable[[View], Iterator[Finding]]

GATE_CHECKS: tuple[GateCheck, ...] = (
    brokers.migration_check_runs_on_every_broker,
    brokers.resources_are_not_created_by_the_broker,
    brokers.unloaded_topics_redirect_at_once,
    brokers.everything_could_be_read,
    redirects.blue_redirects_single_namespaces,
    redirects.redirect_is_complete_and_green,
    redirects.no_other_redirect_is_stored,
    redirects.clients_are_accepted,
    redirects.no_cluster_is_flagged,
    redirects.no_other_namespace_is_flagged,
    redirects.no_namespace_is_flagged_twice,
    redirects.namespaces_exist,
    redirects.green_serves_the_namespaces,
    green.green_has_what_blue_has,
    green.no_change_needs_permission,
    green.roles_have_their_permissions,
    green.green_is_not_in_use,
    compatibility.clusters_are_compatible,
    retention.green_keeps_messages_for_the_drain,
    retention.green_keeps_the_copy,
    retention.retained_messages_are_reported,
    topics.no_transactions_are_used,
    topics.messages_in_flight_can_be_lost,
    topics.delayed_messages_are_reported,
    topics.subscriptions_have_consumers,
    topics.replicators_are_connected,
    topics.no_cluster_replicates_into_blue,
    topics.moved_topics_are_linked,
    topics.replicated_namespaces_are_not_redirected,
    topics.subscriptions_have_read_what_was_not_copied,
    topics.no_topic_has_the_property_of_the_broker,
    topics.functions_are_reported,
    compaction.compacted_values_are_moved,
    unmovable.no_shadow_topic_moves,
    unmovable.no_topic_with_readers_elsewhere_moves,
    unmovable.no_scalable_topic_moves,
    unmovable.ended_topics_are_reported,
    clients.documents_lead_where_clients_go,
    clients.clients_follow_a_redirect,
    clients.readers_continue,
    clients.pattern_consumers_are_reported,
    whole_cluster.cluster_flag_is_needed,
    whole_cluster.every_namespace_moves,
    whole_cluster.blue_is_not_restarted,
    own_clients.subscriptions_are_left,
    own_clients.consumers_are_left,
    own_clients.exclusive_is_permitted,
    own_clients.replicators_may_write,
    copy_rates.messages_are_accepted,
    copy_rates.rates_let_the_copy_end,
    copy_rates.the_copy_fits_the_quotas,
    scheduler.airflow_keeps_the_dag,
    scheduler.overrides_are_watched,
)


def check(view: View) -> tuple[Finding, ...]:
    """Every finding of every gate, blockers first, with the clusters' own names."""
    return blockers_first(finding.named(view.names) for gate in GATE_CHECKS for finding in gate(view))
