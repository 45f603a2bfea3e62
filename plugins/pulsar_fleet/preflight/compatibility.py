"""Check what prevents a target from becoming equal to a source, with consequence and remedy (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pulsar_fleet.planning.translation import translate_snapshot
from pulsar_fleet.preflight.checks import (
    auto_creation,
    brokers,
    clusters,
    defects,
    functions,
    policies,
    roles,
    schemas,
    topics,
    unread,
    versions,
)
from pulsar_fleet.preflight.context import Pair, Probes
from pulsar_fleet.preflight.findings import Finding, blockers_first
from pulsar_fleet.preflight.target_limits import TABLE
from pulsar_fleet.snapshot.model import Snapshot

Check = Callable[[Pair], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    clusters.cluster_names_differ,
    clusters.configuration_stores_differ,
    clusters.listed_clusters_are_known,
    clusters.tenants_allow_their_clusters,
    clusters.peers_are_reachable,
    clusters.clocks_agree,
    versions.brokers_run_supported_versions,
    defects.brokers_have_no_known_defect,
    brokers.policies_are_known_to_the_target,
    brokers.features_in_use_are_enabled,
    brokers.deduplication_survives_replication,
    brokers.defaults_match,
    brokers.brokers_have_equal_settings,
    brokers.dynamic_settings_match,
    versions.changed_defaults_are_harmless,
    versions.names_have_no_white_space_at_their_ends,
    topics.partition_counts_match,
    topics.system_topic_partitions_match,
    topics.topic_names_do_not_clash,
    topics.topic_names_are_accepted,
    topics.topic_states_can_be_copied,
    topics.scalable_topics_are_not_copied,
    topics.subscription_names_can_be_addressed,
    topics.replicated_flags_match,
    auto_creation.broker_auto_creation_matches,
    auto_creation.namespace_auto_creation_matches,
    auto_creation.replicators_can_create,
    schemas.broker_schema_rules_match,
    schemas.namespace_schema_rules_match,
    *(limit.check for limit in TABLE),
    policies.policies_can_be_created,
    policies.effective_policies_match,
    policies.namespaces_are_active,
    policies.offloaders_are_installed,
    policies.entry_filters_are_installed,
    policies.messages_outlive_the_lag,
    roles.security_matches,
    roles.superusers_match,
    roles.tenant_admins_match,
    roles.grants_match,
    roles.authentication_providers_match,
    roles.hidden_areas_are_reported,
    functions.functions_are_not_copied,
    functions.packages_are_not_copied,
    unread.unread_resources_are_reported,
    roles.roles_may_copy,
)


def check_compatibility(source: Snapshot, target: Snapshot, probes: Probes | None = None) -> tuple[Finding, ...]:
    """Every finding of every check, blockers first; without findings the run can start.

    :param probes: measurements that a snapshot does not contain; without them, checks that need them report nothing.
    """
    translated, _ = translate_snapshot(source, target)
    pair = Pair(source, target, translated, probes or Probes())
    return blockers_first(finding for check in CHECKS for finding in check(pair))
