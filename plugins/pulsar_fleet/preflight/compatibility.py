"""What stands in the way of making a target equal to a source, with consequence and remedy (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pulsar_fleet.planning.translation import translate_snapshot
from pulsar_fleet.preflight.checks import auto_creation, brokers, clusters, limits, policies, roles, schemas, topics
from pulsar_fleet.preflight.checks.permissions import roles_may_copy, what_is_hidden_is_told
from pulsar_fleet.preflight.context import Pair, Probes
from pulsar_fleet.preflight.findings import Finding, Severity
from pulsar_fleet.snapshot.model import Snapshot

Check = Callable[[Pair], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    clusters.clusters_are_two,
    clusters.configuration_stores_are_two,
    clusters.listed_clusters_are_known,
    clusters.tenants_allow_their_clusters,
    clusters.peers_can_be_reached,
    clusters.clocks_agree,
    brokers.brokers_run_supported_versions,
    brokers.policies_are_known_to_the_target,
    brokers.features_in_use_are_on,
    brokers.deduplication_survives_replication,
    brokers.defaults_are_alike,
    brokers.brokers_of_a_cluster_agree,
    topics.topics_have_the_same_shape,
    topics.system_topics_have_the_same_shape,
    topics.names_do_not_clash,
    topics.states_can_be_carried,
    topics.subscriptions_are_marked_alike,
    auto_creation.brokers_create_alike,
    auto_creation.namespaces_create_alike,
    auto_creation.replicators_can_create,
    schemas.brokers_judge_alike,
    schemas.namespaces_judge_alike,
    schemas.replicators_may_register,
    schemas.schemas_fit_together,
    limits.tenants_fit,
    limits.namespaces_fit,
    limits.topics_fit,
    limits.partitions_fit,
    limits.subscriptions_fit,
    limits.persistence_fits,
    limits.messages_fit,
    limits.resource_groups_fit,
    policies.policies_can_be_created,
    policies.policies_behave_alike,
    policies.namespaces_are_alive,
    policies.offloaders_are_there,
    policies.entry_filters_are_there,
    policies.messages_outlive_the_lag,
    roles.clusters_ask_alike,
    roles.superusers_are_alike,
    roles.tenant_admins_are_alike,
    roles.grants_are_alike,
    roles.roles_may_log_in,
    what_is_hidden_is_told,
    roles_may_copy,
)


def check_compatibility(source: Snapshot, target: Snapshot, probes: Probes | None = None) -> tuple[Finding, ...]:
    """Every finding of every check, blockers first; an empty answer means: go.

    :param probes: what a snapshot does not hold; checks that need it find nothing without it.
    """
    wanted, _ = translate_snapshot(source, target)
    pair = Pair(source, target, wanted, probes or Probes())
    found = [finding for check in CHECKS for finding in check(pair)]
    return tuple(sorted(found, key=lambda one: (one.severity is not Severity.BLOCKER, one.id, one.resource)))
