from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.policies.documents import STORE_OF, body_for_creation, comparable, problems, translate
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD, CATALOGUE, Kind, unknown_fields
from pulsar_fleet.cluster.policies.setters import creation_calls, policy_calls
from pulsar_fleet.cluster.redaction import Redactor, fingerprints, is_secret_key, restore_secrets, without_user_info

ORDERS = NamespaceName.parse("acme/orders")
REDACTOR = Redactor(b"a key of the tests")
RATE = {"dispatchThrottlingRateInMsg": 100}
# What a 4.2.4 broker shows of a namespace in which nothing was set.
UNSET: dict[str, Any] = {
    "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
    "replication_clusters": ["blue"],
    "allowed_clusters": [],
    "backlog_quota_map": {},
    "topicDispatchRate": {},
    "deleted": False,
    "encryption_required": False,
    "subscription_auth_mode": "None",
    "offload_threshold": -1,
    "schema_compatibility_strategy": "UNDEFINED",
    "is_allow_auto_update_schema": True,
    "subscription_types_enabled": [],
    "properties": {},
    "migrated": False,
}

names = st.sampled_from(["blue", "green", "third", "fourth"])
cluster_lists = st.lists(names, unique=True)


def test_a_list_is_renamed_and_always_has_the_targets_own_name() -> None:
    translated = translate({"replication_clusters": ["blue"]}, "blue", "green")
    assert translated.document["replication_clusters"] == ["green"]


def test_clusters_that_the_target_does_not_know_are_left_out_and_told() -> None:
    translated = translate({"replication_clusters": ["blue", "third"]}, "blue", "green", known_clusters={"green"})
    assert (translated.document["replication_clusters"], translated.omitted_clusters) == (["green"], ("third",))


def test_a_pair_that_replicates_keeps_both_names() -> None:
    translated = translate({"replication_clusters": ["blue", "green"]}, "blue", "green")
    assert translated.document["replication_clusters"] == ["blue", "green"]


def test_an_empty_allowed_list_stays_empty_since_it_means_every_cluster() -> None:
    assert translate(UNSET, "blue", "green").document["allowed_clusters"] == []


def test_who_wrote_a_namespace_last_is_none_of_its_policies() -> None:
    stamp = {"lastUpdatedBy": "blue", "lastUpdatedTime": "1700000000000"}
    plain = comparable({**UNSET, "properties": {"owner": "us"}}, "blue")
    assert comparable({**UNSET, "properties": {"owner": "us", **stamp}}, "blue") == plain
    assert comparable({**UNSET, "properties": stamp}, "blue") == comparable(UNSET, "blue")


def test_which_cluster_takes_part_with_a_store_is_never_copied() -> None:
    claimed = {**UNSET, "properties": {"owner": "us", STORE_OF: "blue"}}
    assert comparable(claimed, "blue") == comparable({**UNSET, "properties": {"owner": "us"}}, "blue")
    assert translate(claimed, "blue", "green").document["properties"] == {"owner": "us"}


@given(replication=cluster_lists, allowed=cluster_lists, known_clusters=st.sets(names))
def test_no_translated_list_lacks_the_target(
    replication: list[str], allowed: list[str], known_clusters: set[str]
) -> None:
    document = {"replication_clusters": replication, "allowed_clusters": allowed}
    translated = translate(document, "blue", "green", known_clusters).document
    assert "green" in translated["replication_clusters"]
    assert not translated["allowed_clusters"] or "green" in translated["allowed_clusters"]


def test_the_entry_of_the_source_becomes_the_entry_of_the_target() -> None:
    document = {"topicDispatchRate": {"blue": RATE, "green": {}, "third": {}}}
    assert translate(document, "blue", "green").document["topicDispatchRate"] == {"green": RATE, "third": {}}


@pytest.mark.parametrize("field", ["deleted", "migrated"])
def test_the_brokers_own_state_is_never_translated(field: str) -> None:
    assert field not in translate({**UNSET, field: True}, "blue", "green").document


def test_an_unknown_field_is_kept_and_shown() -> None:
    document = {**UNSET, "futurePolicy": {"a": 1}}
    assert unknown_fields(document) == ("futurePolicy",)
    assert comparable(translate(document, "blue", "green").document, "green")["futurePolicy"] == {"a": 1}


def test_a_namespace_without_policies_compares_as_its_list_and_the_default() -> None:
    assert comparable(UNSET, "blue") == {"replication_clusters": ["blue"], "is_allow_auto_update_schema": True}


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (
            {"subscription_types_enabled": ["Shared", "Failover"]},
            {"subscription_types_enabled": ["Failover", "Shared"]},
        ),
        ({"dispatcherPauseOnAckStatePersistentEnabled": False}, {}),
        (
            {"backlog_quota_map": {"message_age": {"limit": 5, "limitSize": 5, "limitTime": 1}}},
            {"backlog_quota_map": {"message_age": {"limitSize": 5, "limitTime": 1}}},
        ),
        ({"offload_policies": {"a": 1, "s3Driver": True}}, {"offload_policies": {"a": 1, "s3Driver": False}}),
        ({"persistence": {"a": 1, "managedLedgerStorageClassName": None}}, {"persistence": {"a": 1}}),
        ({"clusterDispatchRate": {"blue": RATE}}, {}),
        ({"topicDispatchRate": {"blue": RATE, "third": RATE}}, {"topicDispatchRate": {"blue": RATE}}),
    ],
)
def test_documents_that_mean_the_same_compare_equal(first: dict[str, Any], other: dict[str, Any]) -> None:
    assert comparable(first, "blue") == comparable(other, "blue")


def test_every_policy_that_counts_can_be_set_or_is_only_taken_at_creation() -> None:
    without = [policy.field for policy in CATALOGUE if policy.comparable and not policy.path]
    assert all(BY_FIELD[field].kind is Kind.AT_CREATION for field in without)


def test_creation_is_one_call_and_one_for_each_setting_beside_the_document() -> None:
    calls = creation_calls(ORDERS, {**UNSET, "anti_affinity": "a", "bookie_affinity": None})
    assert [call.text() for call in calls] == [
        "PUT /namespaces/acme/orders",
        "POST /namespaces/acme/orders/antiAffinity",
    ]


def test_the_creating_body_has_nothing_of_the_brokers_own() -> None:
    assert not {"deleted", "migrated", "anti_affinity"} & set(body_for_creation({**UNSET, "anti_affinity": "a"}))


@pytest.mark.parametrize(
    ("field", "before", "after", "expected"),
    [
        ("message_ttl_in_seconds", None, 5, ["POST /namespaces/acme/orders/messageTTL"]),
        ("message_ttl_in_seconds", 5, None, ["DELETE /namespaces/acme/orders/messageTTL"]),
        ("offload_policies", {"a": 1}, None, ["DELETE /namespaces/acme/orders/removeOffloadPolicies"]),
        (
            "deduplicationSnapshotIntervalSeconds",
            5,
            None,
            ["POST /namespaces/acme/orders/deduplicationSnapshotInterval"],
        ),
        ("resource_group_name", None, "gold", ["POST /namespaces/acme/orders/resourcegroup/gold"]),
        (
            "backlog_quota_map",
            {"message_age": {"limitTime": 1}},
            {"destination_storage": {"limitSize": 1}},
            [
                "POST /namespaces/acme/orders/backlogQuota?backlogQuotaType=destination_storage",
                "DELETE /namespaces/acme/orders/backlogQuota?backlogQuotaType=message_age",
            ],
        ),
        (
            "auth_policies",
            {"namespace_auth": {"kept": ["produce"]}},
            {"namespace_auth": {"kept": ["produce"], "new": ["consume"]}},
            ["POST /namespaces/acme/orders/permissions/new"],
        ),
        (
            "auth_policies",
            {
                "namespace_auth": {"gone": ["produce"]},
                "subscription_auth_roles": {"s": ["a", "b"]},
                "destination_auth": {"persistent://acme/orders/x": {"kept": ["consume"], "gone": ["produce"]}},
            },
            {"destination_auth": {"persistent://acme/orders/x": {"kept": ["consume"]}}},
            [
                "DELETE /namespaces/acme/orders/permissions/gone",
                "DELETE /namespaces/acme/orders/permissions/s/a",
                "DELETE /namespaces/acme/orders/permissions/s/b",
                "DELETE /persistent/acme/orders/x/permissions/gone",
            ],
        ),
        (
            "properties",
            {"kept": "a", "gone/b": "b"},
            {"kept": "a", "new": "c"},
            ["PUT /namespaces/acme/orders/properties", "DELETE /namespaces/acme/orders/property/gone%2Fb"],
        ),
    ],
)
def test_the_calls_of_a_policy(field: str, before: Any, after: Any, expected: list[str]) -> None:
    assert [call.text() for call in policy_calls(BY_FIELD[field], ORDERS, before, after)] == expected


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"replication_clusters": ["blue"]}, "does not include 'green'"),
        ({"replication_clusters": ["green"], "allowed_clusters": ["blue"]}, "does not include 'green'"),
        ({"replication_clusters": ["green"], "schema_compatibility_strategy": "FOOL"}, "'FOOL' is not one of"),
        ({"replication_clusters": ["green"], "max_producers_per_topic": -5}, "must be at least 0"),
        (
            {
                "replication_clusters": ["green"],
                "retention_policies": {"retentionSizeInMB": 1, "retentionTimeInMinutes": 1},
                "backlog_quota_map": {"destination_storage": {"limitSize": 1 << 30}},
            },
            "not below the retention",
        ),
    ],
)
def test_what_the_broker_would_store_unchecked_is_found(document: dict[str, Any], expected: str) -> None:
    assert expected in problems(document, "green")[0]


def test_a_secret_becomes_a_fingerprint_and_comes_back() -> None:
    document = {
        "offload_policies": {"s3ManagedLedgerOffloadCredentialSecret": "hush", "s3ManagedLedgerOffloadBucket": "b"}
    }
    redacted = REDACTOR.redact(document)
    assert "hush" not in str(redacted)
    assert restore_secrets(redacted, REDACTOR.secrets(document)) == document


def test_user_and_password_in_a_url_become_a_fingerprint_and_come_back() -> None:
    document = {
        "proxyServiceUrl": "pulsar+ssl://ops:hush@proxy.example:6651",
        "offload_policies": {"s3ManagedLedgerOffloadServiceEndpoint": "http://ops:hu?s#h@h@store.example:9000/bucket"},
        "urls": ["http://ops@one.example", "pulsar://plain.example:6650/a@b"],
    }
    redacted = REDACTOR.redact(document)
    assert not {"hush", "hu?s", "ops"} & set(re.split(r"[^\w?]+", str(redacted)))
    assert redacted["proxyServiceUrl"].endswith("@proxy.example:6651")
    assert redacted["urls"][1] == document["urls"][1]
    assert REDACTOR.redact(redacted) == redacted
    assert fingerprints(redacted) == set(REDACTOR.secrets(document))
    assert restore_secrets(redacted, REDACTOR.secrets(document)) == document
    assert without_user_info(redacted) == without_user_info(document)
    assert without_user_info(document["proxyServiceUrl"]) == "pulsar+ssl://proxy.example:6651"


def test_a_fingerprint_in_a_url_without_its_secret_is_never_written() -> None:
    with pytest.raises(PreconditionFailed, match="'url'"):
        restore_secrets(REDACTOR.redact({"url": "http://ops:hush@host"}), {})


def test_a_fingerprint_whose_secret_is_not_available_is_never_written() -> None:
    with pytest.raises(PreconditionFailed, match="is not available"):
        restore_secrets(REDACTOR.redact({"password": "hush"}), {})


def test_equal_secrets_have_equal_fingerprints_only_under_one_key() -> None:
    assert REDACTOR.fingerprint("hush") == REDACTOR.fingerprint("hush") != Redactor(b"another key").fingerprint("hush")
    assert fingerprints(REDACTOR.redact([{"token": "hush"}])) == {REDACTOR.fingerprint("hush")}


@pytest.mark.parametrize(
    "key", ["s3ManagedLedgerOffloadCredentialSecret", "brokerClientAuthenticationParameters", "tlsKeyStorePassword"]
)
def test_these_keys_hold_secrets(key: str) -> None:
    assert is_secret_key(key)


@pytest.mark.parametrize("key", ["s3ManagedLedgerOffloadCredentialId", "tokenAuthClaim", "retentionTimeInMinutes"])
def test_these_keys_hold_none(key: str) -> None:
    assert not is_secret_key(key)
