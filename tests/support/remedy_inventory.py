"""Every finding of the package: the kind of its remedy, the test that does what the text says, and its nearest case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a person does who follows a remedy."""

    CALL = "sends a call to a cluster, or runs a procedure: it is executed on real clusters"
    COMMAND = "runs a command, clears a task or changes a setting of a run: its name is checked"
    BROKER = "changes broker.conf and restarts brokers: a broker is started with it"
    DECISION = "looks, waits or decides: its text is checked"


@dataclass(frozen=True)
class Group:
    """Findings whose remedies the same two tests cover.

    :param done: the test that does what the text says where it is printed: the finding is gone, or nothing changed.
    :param nearest: the test of the nearest state in which the remedy would be wrong: it is harmless or not printed.
    :param says: finding → phrases of which its text has one: its precondition, or that nothing is deleted.
    """

    kind: Kind
    done: str
    nearest: str
    says: Mapping[str, tuple[str, ...]]


_CALLS = "contract/preflight/test_remedies.py::"
_BY_HAND = "contract/preflight/test_remedies_by_hand.py::"
_REDIRECTS = "contract/migration/test_remedies.py::"
_GATES = "contract/migration/test_gate_remedies.py::"
_PROOFS = "contract/migration/test_stale_proofs.py::"
_FRESH = "unit/migration/test_proof_freshness.py::test_a_young_proof_under_live_replication_is_fresh"
_BROKERS = "contract/preflight/test_broker_remedies.py::"
_NEAREST = "test_a_remedy_is_not_printed_in_the_nearest_state_where_it_is_wrong"
_NOT_IN_PAIRS = f"unit/preflight/test_compatibility.py::{_NEAREST}"
_NOT_IN_VIEWS = f"unit/migration/test_gates.py::{_NEAREST}"
_NOT_BEFORE_FAILBACK = f"unit/migration/test_failback_checks.py::{_NEAREST}"
_COMPACTED = "contract/migration/test_compacted_topics.py::"
INVENTORY: tuple[Group, ...] = (
    Group(
        Kind.CALL,
        f"{_COMPACTED}test_values_that_are_written_again_are_moved",
        _NOT_IN_VIEWS,
        {
            "compacted-values-stay": (
                "move the namespace with replicate_then_switch",
                "accept this finding with a waiver",
            ),
            "compacted-values-trimmed": ("set a retention",),
        },
    ),
    Group(
        Kind.CALL,
        f"{_CALLS}test_the_printed_call_removes_the_finding_and_harms_nothing",
        f"{_CALLS}test_where_the_finding_would_be_wrong_its_call_is_not_printed",
        {
            "auto-creation-differs": (),
            "auto-subscription-differs": (),
            "dedup-default-differs": (),
            "partitions-differ": (),
            "quota-shorter-than-lag": (),
            "replicated-flag-differs": (),
            "resource-group-differs": (),
            "retention-default-differs": (),
            "retention-shorter-than-lag": (),
            "role-only-on-target": (),
            "schema-strategy-differs": (),
            "too-many-subscriptions": (),
            "too-many-topics": (),
            "ttl-default-differs": (),
            "ttl-shorter-than-lag": (),
            "value-refused": ("the effect there is the same", "decide what is to apply on both clusters"),
        },
    ),
    Group(
        Kind.CALL,
        f"{_CALLS}test_a_call_that_only_asks_changes_nothing",
        f"{_CALLS}test_a_call_that_only_asks_changes_nothing",
        {
            "namespace-migrated": (),
            "schema-incompatible": (),
        },
    ),
    Group(
        Kind.CALL,
        f"{_CALLS}test_the_override_of_a_migration_on_blue_is_no_reason_to_change_green",
        _NOT_IN_PAIRS,
        {
            "inactive-topics-default-differs": ("nothing if a dynamic setting is the cause",),
        },
    ),
    Group(
        Kind.CALL,
        f"{_BY_HAND}test_what_a_text_says_removes_its_finding_and_is_not_said_nearby",
        f"{_BY_HAND}test_what_a_text_says_removes_its_finding_and_is_not_said_nearby",
        {
            "partitions-grow": ("while no consumer needs order",),
            "resource-not-readable": (
                "leave it out of the selection",
                "give the role of this connection the right",
                "then read the cluster again",
            ),
            "schema-history-differs": ("nothing, if",),
            "schema-undecided": ("this call registers nothing",),
            "topic-terminated": ("only if no application writes to it there",),
            "topic-terminated-on-target": ("keep it", "storageSize 0"),
        },
    ),
    Group(
        Kind.CALL,
        f"{_BY_HAND}test_what_a_text_says_removes_its_finding_and_is_not_said_nearby",
        f"{_BY_HAND}test_a_topic_in_use_does_not_meet_the_condition_of_its_deletion",
        {
            "partitioned-on-one-side": ("storageSize 0",),
        },
    ),
    Group(
        Kind.CALL,
        f"{_BY_HAND}test_what_a_text_says_removes_its_finding_and_is_not_said_nearby",
        f"{_BY_HAND}test_a_schema_on_an_enforcing_cluster_refuses_producers_without_one",
        {
            "schema-only-on-target": ("Do not delete it",),
        },
    ),
    Group(
        Kind.CALL,
        f"{_BY_HAND}test_the_remedy_of_a_hung_deletion_deletes_no_namespace_in_use",
        f"{_BY_HAND}test_the_remedy_of_a_hung_deletion_deletes_no_namespace_in_use",
        {
            "namespace-deleted": ("without force",),
        },
    ),
    Group(
        Kind.CALL,
        f"{_BY_HAND}test_a_limit_that_is_too_low_is_raised_without_a_restart",
        _NOT_IN_PAIRS,
        {
            "too-many-namespaces": ("is still lower",),
            "too-many-partitions": ("is still lower",),
            "too-many-tenants": ("is still lower",),
        },
    ),
    Group(
        Kind.CALL,
        f"{_BY_HAND}test_a_peer_gets_its_addresses_and_keeps_its_other_fields",
        _NOT_IN_PAIRS,
        {
            "cluster-unknown-to-target": ("is to replicate to it",),
            "peer-address-local": ("keep its other fields and its credentials",),
            "peer-address-missing": ("keep its other fields and its credentials",),
            "peer-unreachable-from-here": ("open a connection",),
        },
    ),
    Group(
        Kind.CALL,
        "contract/replication/test_target_limits.py::test_the_doctor_names_a_message_that_the_target_refuses",
        "unit/replication/test_limits_of_plans.py::test_a_limit_that_both_clusters_have_is_no_finding",
        {
            "message-size-lower": ("set the limit of green on blue too",),
        },
    ),
    Group(
        Kind.CALL,
        "contract/preflight/test_bookies.py::test_more_bookies_than_green_has_are_named_before_anything_changes",
        _NOT_IN_PAIRS,
        {
            "bookies-missing": ("on fewer bookies", "keeps the", "add bookies to green until it has"),
        },
    ),
    Group(
        Kind.CALL,
        "contract/preflight/test_bookies.py::test_a_group_of_bookies_that_green_lacks_is_named_and_made",
        _NOT_IN_PAIRS,
        {
            "bookie-group-missing": ("only those that no namespace of another group needs",),
        },
    ),
    Group(
        Kind.CALL,
        "contract/replication/test_target_limits.py::test_a_resource_group_is_created_by_the_printed_call",
        "unit/replication/test_limits_of_plans.py::test_a_resource_group_that_the_target_has_is_no_finding",
        {
            "resource-group-not-copied": ("if no other namespace of",),
        },
    ),
    Group(
        Kind.CALL,
        "contract/preflight/test_target_rules.py::test_a_tenant_without_the_spaced_role_is_copied",
        _NOT_IN_PAIRS,
        {
            "admin-role-refused": ("if no token or certificate",),
        },
    ),
    Group(
        Kind.CALL,
        f"{_BY_HAND}test_a_tenant_that_is_allowed_a_cluster_keeps_its_roles_and_clusters",
        _NOT_IN_PAIRS,
        {
            "cluster-not-allowed": ("repeat those that it has",),
        },
    ),
    Group(
        Kind.CALL,
        f"{_BY_HAND}test_what_blues_brokers_apply_is_set_there_and_copied_for_every_policy",
        _NOT_IN_PAIRS,
        {
            "behaves-differently": ("nothing changes there", "accept the difference"),
            "schema-default-differs": ("nothing",),
        },
    ),
    Group(
        Kind.CALL,
        f"{_BY_HAND}test_dynamic_settings_are_named_without_those_that_a_run_overrides",
        _NOT_IN_PAIRS,
        {
            "dynamic-settings-differ": ("some may belong to one cluster only",),
        },
    ),
    Group(
        Kind.CALL,
        f"{_BY_HAND}test_the_configuration_store_is_named_by_the_printed_call",
        _NOT_IN_PAIRS,
        {
            "shared-configuration-store": ("do not copy",),
        },
    ),
    Group(
        Kind.CALL,
        f"{_REDIRECTS}test_a_flag_that_no_redirect_made_effective_is_cleared",
        f"{_REDIRECTS}test_a_moved_namespace_keeps_its_flag_and_its_redirect_is_stored_again",
        {
            "flag-left-elsewhere": (),
        },
    ),
    Group(
        Kind.CALL,
        f"{_REDIRECTS}test_a_moved_namespace_keeps_its_flag_and_its_redirect_is_stored_again",
        f"{_REDIRECTS}test_a_flag_or_redirect_of_a_migration_to_a_third_cluster_is_kept",
        {
            "redirect-lost": (),
        },
    ),
    Group(
        Kind.CALL,
        f"{_REDIRECTS}test_a_redirect_that_nobody_uses_is_deleted_and_a_used_one_is_not",
        f"{_REDIRECTS}test_a_flag_or_redirect_of_a_migration_to_a_third_cluster_is_kept",
        {
            "redirect-to-another-cluster": (),
        },
    ),
    Group(
        Kind.CALL,
        f"{_REDIRECTS}test_a_redirect_on_green_is_deleted_only_while_no_flag_is_set_there",
        f"{_REDIRECTS}test_a_redirect_on_green_is_deleted_only_while_no_flag_is_set_there",
        {
            "redirect-left-on-green": (),
        },
    ),
    Group(
        Kind.CALL,
        f"{_REDIRECTS}test_an_alias_of_green_stays_stored_and_the_connection_takes_it",
        _NOT_IN_VIEWS,
        {
            "redirect-to-other-addresses": ("set the stored addresses in the connection",),
        },
    ),
    Group(
        Kind.CALL,
        f"{_REDIRECTS}test_of_two_flags_without_effect_both_are_cleared",
        f"{_REDIRECTS}test_of_two_flags_the_one_that_sends_clients_on_stays",
        {
            "both-sides-flagged": (),
        },
    ),
    Group(
        Kind.CALL,
        f"{_REDIRECTS}test_the_flag_on_green_is_cleared_for_a_failback_only_with_open_topics",
        _NOT_BEFORE_FAILBACK,
        {
            "both-flagged": (),
        },
    ),
    Group(
        Kind.CALL,
        "contract/pairs/test_pairs.py::test_a_list_that_stops_a_failback_is_set_by_the_printed_call",
        _NOT_BEFORE_FAILBACK,
        {
            "replicated-from-blue": (),
        },
    ),
    Group(
        Kind.CALL,
        f"{_REDIRECTS}test_a_users_property_is_removed_and_the_brokers_mark_is_not_mentioned",
        _NOT_IN_VIEWS,
        {
            "migrated-property": (),
        },
    ),
    Group(
        Kind.CALL,
        f"{_REDIRECTS}test_retention_for_the_copy_is_set_where_the_run_reads_it",
        _NOT_IN_VIEWS,
        {
            "copy-not-kept": (),
        },
    ),
    Group(
        Kind.CALL,
        f"{_REDIRECTS}test_a_quota_that_the_copy_exceeds_is_lifted_by_the_printed_call",
        _NOT_IN_VIEWS,
        {
            "copy-exceeds-quota": ("lift the quota", "set it back on green"),
        },
    ),
    Group(
        Kind.CALL,
        "contract/migration/test_own_clients.py::test_what_a_copy_needs_is_permitted_by_the_printed_call",
        _NOT_IN_VIEWS,
        {
            "exclusive-not-permitted": ("until the run has ended",),
            "no-consumer-left": ("until the run has ended",),
            "no-subscription-left": ("until the run has ended",),
            "replicator-not-encrypted": ("until then producers may publish without", "strategy redirect"),
        },
    ),
    Group(
        Kind.CALL,
        f"{_GATES}test_the_stored_redirect_is_read_by_the_printed_call",
        _NOT_IN_VIEWS,
        {
            "redirect-unknown": ("GET /admin/v2/clusters/",),
        },
    ),
    Group(
        Kind.CALL,
        f"{_GATES}test_green_is_added_to_a_list_in_which_the_other_clusters_stay",
        _NOT_IN_VIEWS,
        {
            "green-not-in-list": ("leave the other clusters in it", "do not add", "upgrade the brokers"),
        },
    ),
    Group(
        Kind.DECISION,
        "unit/migration/test_gates.py::test_clusters_with_one_store_redirect_what_replicates_nowhere",
        _NOT_IN_VIEWS,
        {
            "replicates-in-shared-store": ("leave the namespace out of the run",),
        },
    ),
    Group(
        Kind.CALL,
        f"{_GATES}test_a_grant_is_printed_with_the_actions_and_roles_that_green_has",
        _NOT_IN_VIEWS,
        {
            "role-missing-on-green": ("a grant replaces",),
        },
    ),
    Group(
        Kind.CALL,
        f"{_GATES}test_a_cluster_that_needs_nothing_is_taken_out_and_no_topic_is_lost",
        _NOT_IN_VIEWS,
        {
            "replicator-disconnected": ("leave all other clusters in it", "once more as it is"),
        },
    ),
    Group(
        Kind.CALL,
        f"{_GATES}test_the_plan_creates_what_green_lacks_and_changes_nothing_else",
        _NOT_IN_VIEWS,
        {
            "client-repeats": ("deduplication",),
            "green-namespace-missing": ("let this run prepare green",),
            "green-policies-differ": ("let this run prepare green",),
            "green-schemas-missing": ("let this run prepare green",),
            "green-subscriptions-missing": ("let this run prepare green",),
            "green-tenant-differs": ("let this run prepare green",),
            "green-topic-policies-differ": ("let this run prepare green",),
            "green-topics-missing": ("let this run prepare green",),
        },
    ),
    Group(
        Kind.CALL,
        f"{_GATES}test_a_copied_namespace_moves_by_cursor_transfer_once_replication_ends",
        _NOT_IN_VIEWS,
        {
            "abandoned-subscription": ("Delete it only if no application needs its messages", "it is transferred"),
            "copied-and-redirected": ("replicate_then_switch",),
        },
    ),
    Group(
        Kind.CALL,
        "contract/migration/test_incoming_replication.py::"
        "test_a_third_cluster_that_replicates_to_green_first_loses_nothing",
        _NOT_IN_VIEWS,
        {"replicates-into-blue": ("backlog to blue is 0",)},
    ),
    Group(
        Kind.CALL,
        "contract/cli/test_complete_move.py::test_moved_applications_are_not_moved_once_more_by_a_flag",
        _NOT_IN_VIEWS,
        {"clients-led-to-green": ("complete_move",)},
    ),
    Group(
        Kind.CALL,
        "contract/migration/test_repoint.py::test_applications_connect_to_green_in_turn_and_blue_refuses_producers",
        _NOT_IN_VIEWS,
        {"redirect-not-supported": ("replicate_then_repoint",)},
    ),
    Group(
        Kind.CALL,
        "contract/migration/test_whole_cluster.py::test_every_namespace_is_redirected_at_once_and_nothing_is_lost",
        _NOT_IN_VIEWS,
        {
            "cluster-flag-not-needed": ("set the strategy auto",),
            "namespace-left-out": ("delete it if nobody uses it", "run again"),
            "blue-must-not-restart": ("restart no broker",),
        },
    ),
    Group(
        Kind.CALL,
        f"{_GATES}test_before_a_failback_only_an_empty_topic_on_blue_is_to_be_deleted",
        _NOT_BEFORE_FAILBACK,
        {
            "open-on-blue": ("take the namespace out", "no entries, subscriptions or clients"),
        },
    ),
    Group(
        Kind.CALL,
        f"{_GATES}test_the_removal_before_a_failback_is_allowed_by_the_named_setting",
        _NOT_BEFORE_FAILBACK,
        {
            "removal-not-allowed": ("allow_removal",),
        },
    ),
    Group(
        Kind.CALL,
        f"{_PROOFS}test_a_proof_that_is_verified_again_lets_the_run_cut_over",
        _FRESH,
        {
            "proof-too-old": ("verify again",),
            "settings-changed": ("take the change back, or make it on the other cluster too",),
        },
    ),
    Group(
        Kind.CALL,
        f"{_PROOFS}test_a_run_undone_and_started_again_moves_topics_created_meanwhile",
        _FRESH,
        {
            "topics-changed": ("then start it again",),
        },
    ),
    Group(
        Kind.CALL,
        f"{_PROOFS}test_a_copy_that_a_client_wrote_to_is_verified_again_without_it",
        _FRESH,
        {
            "green-written-to": ("find that client and stop it",),
        },
    ),
    Group(
        Kind.CALL,
        f"{_PROOFS}test_a_proof_that_is_verified_again_lets_the_run_cut_over",
        _NOT_BEFORE_FAILBACK,
        {
            "no-proof": ("run verify_clusters", "clear the task verify_copy"),
        },
    ),
    Group(
        Kind.CALL,
        "contract/cli/test_migration.py::test_a_killed_migration_is_resumed_to_its_end",
        _NOT_BEFORE_FAILBACK,
        {
            "other-run": ("never while one of its tasks runs", "If its process has died"),
        },
    ),
    Group(
        Kind.CALL,
        "contract/migration/test_dead_runs.py::test_a_dead_run_is_restored_without_its_ledger_and_a_live_one_is_kept",
        "unit/replication/test_unfinished_runs.py::test_a_run_that_has_ended_or_cut_over_is_no_finding",
        {
            "run-not-ended": ("it touches no live run",),
        },
    ),
    Group(
        Kind.COMMAND,
        "unit/test_remedies.py::test_a_task_a_setting_or_a_dag_that_a_remedy_names_exists",
        _NOT_IN_VIEWS,
        {
            "green-in-use": ("leave them and find out",),
            "namespace-missing": ("correct 'namespaces'",),
        },
    ),
    Group(
        Kind.BROKER,
        f"{_BROKERS}test_a_broker_starts_with_every_printed_value_and_then_nothing_is_said",
        _NOT_IN_PAIRS,
        {
            "delayed-delivery-off": ("Restart no broker",),
            "max-message-size-smaller": ("Restart no broker",),
            "persistence-too-wide": ("Restart no broker",),
            "remote-topic-creation-off": ("Restart no broker",),
            "replicated-subscriptions-off": ("Restart no broker",),
            "security-differs": ("give every client credentials", "Restart no broker"),
            "topic-policies-off": ("Restart no broker",),
            "transactions-off": ("Restart no broker",),
        },
    ),
    Group(
        Kind.BROKER,
        f"{_BROKERS}test_a_broker_starts_with_every_printed_value_and_then_nothing_is_said",
        _NOT_IN_VIEWS,
        {
            "auto-resource-creation-on": ("Restart no broker",),
            "migration-check-off": ("Restart no broker",),
            "migration-check-seldom": ("Restart no broker",),
        },
    ),
    Group(
        Kind.BROKER,
        f"{_BROKERS}test_just_the_settings_that_need_a_restart_are_not_dynamic",
        _NOT_IN_PAIRS,
        {
            "authentication-provider-missing": ("Restart no broker",),
            "brokers-disagree": ("while no migration drains",),
            "entry-filter-missing": ("Restart no broker",),
            "offload-driver": ("Restart no broker",),
        },
    ),
    Group(
        Kind.DECISION,
        "unit/preflight/test_compatibility.py::test_a_seeded_fault_is_found_and_nothing_else",
        _NOT_IN_PAIRS,
        {
            "bookies-unknown": ("count the bookies", "read the groups of"),
            "clocks-differ": ("NTP",),
            "dedup-before-fix": ("upgrade",),
            "functions-not-copied": ("create them on",),
            "functions-worker-state": ("leave this namespace out",),
            "named-like-a-partition": ("storageSize 0",),
            "no-right-to-copy": ("repeat those that it has",),
            "not-settable": ("superuser",),
            "not-visible": ("superuser",),
            "packages-not-copied": ("upload them to",),
            "protocol-handler-missing": ("let these clients stay",),
            "protocol-handler-state": ("leave this namespace out",),
            "policies-invalid": ("correct the policy",),
            "resource-group-missing": ("nothing, if",),
            "scalable-topics-not-copied": ("read what is left on",),
            "schema-update-off-for-replicator": ("register every schema on both",),
            "shadow-topic": ("nothing, if",),
            "subscription-not-addressable": ("use another subscription name",),
            "superuser-only-on-source": ("only roles that administer the whole cluster",),
            "system-topic-differs": ("Do not delete the topic",),
            "topic-name-refused": ("use a topic with another name",),
            "target-older": ("upgrade the target",),
            "version-not-measured": ("rehearse the procedure",),
            "version-unknown": ("accept with a waiver",),
            "version-unsupported": ("upgrade the brokers",),
            "versions-mixed": ("finish the rolling upgrade",),
        },
    ),
    Group(
        Kind.DECISION,
        "unit/preflight/test_defects.py::test_a_defect_is_reported_where_version_and_estate_meet_it",
        "unit/preflight/test_defects.py::test_a_defect_is_not_reported_in_the_nearest_estate_without_it",
        {
            "batch-acknowledgments-forgotten": ("accept a message twice",),
            "compacted-read-stuck": ("restart a reader that gets nothing",),
            "compaction-blocks-deletion": ("wait until the compaction has ended",),
            "cursor-properties-forgotten": ("only if its log still has every value",),
            "dotted-cluster-name": ("do not clear the backlog",),
            "empty-list-of-clusters": ("to the cluster that serves it",),
            "expiry-skips-readers": ("let readers catch up",),
            "inactive-topic-deleted": ("turn off the deletion",),
            "interceptor-answers-400": ("setting a policy to what it is",),
            "lookup-mixes-listeners": ("nothing",),
            "metadata-events-lost": ("in mode report",),
            "offload-forgotten": ("leave the offloaded objects where they are",),
            "policies-cache-stuck": ("where no migrated namespace drains",),
            "proxy-answers-502": ("use an address of the brokers",),
            "replicated-subscription-stalls": ("accept messages twice",),
            "replicator-stops-at-rate": ("raise the dispatch rate",),
            "shadow-deletes-source": ("neither delete nor trim",),
            "shadow-replicator-leaks": ("watch the direct memory",),
            "snapshot-lost": ("accept messages twice",),
            "subscribe-rate-stalls-compaction": ("raise the rate",),
            "subscription-activity-forgotten": ("accept messages twice",),
        },
    ),
    Group(
        Kind.DECISION,
        "unit/preflight/test_changed_defaults.py::test_a_changed_default_is_named_where_the_estate_meets_it",
        "unit/preflight/test_changed_defaults.py::test_a_changed_default_is_not_named_in_the_nearest_pair",
        {
            "batch-acknowledgments-off": ("if consumers can take messages twice",),
            "host-names-are-verified": ("check that the certificates",),
            "name-with-white-space": ("before they move",),
            "original-credentials-are-checked": ("if such clients come",),
            "shadow-topics-off": ("if they are to serve",),
        },
    ),
    Group(
        Kind.DECISION,
        "unit/preflight/test_compatibility.py::test_a_fault_beside_others_is_found",
        _NOT_IN_PAIRS,
        {
            "policy-unknown-to-target": ("accept that the policy has no effect",),
            "same-cluster-name": ("use two connections",),
        },
    ),
    Group(
        Kind.DECISION,
        "unit/migration/test_gates.py::test_a_fault_is_found_by_its_name_and_nothing_else_is",
        _NOT_IN_VIEWS,
        {
            "blue-is-migrated": ("choose another cluster",),
            "broker-not-readable": ("Restart no broker",),
            "certificate-not-trusted": ("both authorities",),
            "client-cannot-follow": ("upgrade this application",),
            "moved-topic-not-linked": ("replicate them in both directions first",),
            "clients-not-led-to-green": ("move them with move_clients first",),
            "subscription-missing-on-green": ("if its application has unsubscribed",),
            "clients-led-to-blue": (
                "with move_clients before",
                "replicate the namespace both ways",
                "set the strategy replicate_then_move_clients",
            ),
            "read-on-blue-since": ("find who reads it there",),
            "client-may-hang": ("plan a restart",),
            "client-needs-tls-url": ("nothing to do",),
            "client-unknown": ("identify the client",),
            "credentials-refused-by-green": ("accept the tokens",),
            "credentials-unknown": ("run again",),
            "dag-may-become-stale": ("restart the DAG processor",),
            "watch-not-running": ("unpause watch_overrides",),
            "delayed-messages": ("wait until they are delivered",),
            "copy-throttled": ("allow that time",),
            "flags-unknown": ("superuser's token",),
            "functions-in-namespace": ("create them on green",),
            "restart-repeats": ("connect applications to", "before they restart"),
            "retained-messages-stay": ("or nothing if nobody reads them again",),
            "retained-messages-not-copied": ("let who needs them read them on",),
            "scalable-topics-stay": ("leave the namespace out of the run",),
            "shadow-stays": ("a deletion by hand can delete data of its source",),
            "change-needs-permission": ("decide which value is to apply",),
            "read-only-copy-ends": ("agree with its readers", "waive"),
            "topic-ended": ("nothing",),
            "functions-unknown": ("make the functions worker answer",),
            "green-is-migrated": ("choose another cluster",),
            "non-durable-consumer": ("nothing if they may start",),
            "non-persistent-topic": ("stop its producers",),
            "longest-delay-shorter": ("not below the longest delay in use",),
            "not-readable": ("correct the cause",),
            "pattern-consumer-possible": ("before blue may delete its topics",),
            "reader-stalls": ("start them against green",),
            "redirect-kind-missing": ("make sure that no client of blue uses it",),
            "redirect-not-green": ("correct the address",),
            "redirect-not-verified": ("green's own brokers",),
            "redirect-unreachable": ("correct the address",),
            "replication-backlog": ("wait until it is near 0",),
            "superuser-needed": ("token of a superuser",),
            "topic-not-readable": ("correct the cause",),
            "transactions-in-use": ("stop the transactional applications",),
            "unread-not-copied": ("let the application read them on",),
        },
    ),
    Group(
        Kind.DECISION,
        "unit/migration/test_failback_checks.py::test_each_check_stops_the_failback",
        _NOT_BEFORE_FAILBACK,
        {
            "clients-on-blue": ("they are redirected to green", "blue does not redirect this namespace"),
            "clusters-exchanged": ("exchange the two clusters",),
            "history-cannot-return": ("the history stays on green",),
            "still-draining": ("let them drain",),
        },
    ),
    Group(
        Kind.DECISION,
        "unit/migration/test_failback_checks.py::test_an_unhealthy_broker_of_blue_stops_the_failback",
        _NOT_BEFORE_FAILBACK,
        {
            "blue-broker-unhealthy": ("Restart no broker of blue while a migrated namespace drains",),
        },
    ),
)


def groups(id_: str) -> Iterator[Group]:
    """The groups that name a finding: exactly one."""
    return (group for group in INVENTORY if id_ in group.says)


def done_by(*tests: str) -> frozenset[str]:
    """The findings whose remedies these tests execute."""
    return frozenset(id_ for group in INVENTORY if group.done.endswith(tests) for id_ in group.says)
