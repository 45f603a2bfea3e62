"""Remedies of findings: parse the calls that they print, and say which of them a machine may execute.

The inventory is read from the package's own source, so that a new finding without a case fails a test.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pulsar_fleet
from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.planning.hazards.rules import CALL_RULES
from pulsar_fleet.preflight.findings import Finding

_ID = re.compile(r"[a-z]+(-[a-z]+)+")
_SEPARATOR = re.compile(r"; (?=[\w.-]+: (?:GET|PUT|POST|DELETE) /admin/v2/)")
_CALL = re.compile(r"([\w.-]+): (GET|PUT|POST|DELETE) /admin/v2(/[^ ?]+)(?:\?(\S+))?(?: (.+))?", re.DOTALL)
_NOT_IDS = frozenset({"non-partitioned", "partitioned-stats"})

CATALOGUES = (
    "preflight/checks",
    "migration/preflight/gates",
    "migration/failback/checks.py",
    "migration/proof_freshness.py",
)
"""Where findings with remedies are defined, relative to the package."""


def inventory() -> frozenset[str]:
    """The id of every finding that the package can print."""
    root = Path(pulsar_fleet.__file__).parent
    paths = [
        path for name in CATALOGUES for path in ([root / name] if name.endswith(".py") else (root / name).glob("*"))
    ]
    behaviours = root / "migration" / "preflight" / "client_compatibility.py"
    return (
        frozenset(
            node.value
            for path in (*paths, behaviours)
            if path.suffix == ".py"
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _ID.fullmatch(node.value)
        )
        - _NOT_IDS
        - {"client-follows"}
    )


def calls(text: str) -> list[tuple[str, Call]]:
    """Each call of a finding, with the name of its cluster."""
    return [_parsed(part) for part in _SEPARATOR.split(text) if part]


def _parsed(text: str) -> tuple[str, Call]:
    matched = _CALL.fullmatch(text)
    assert matched, f"not a call that a person can send: {text!r}"
    cluster, method, path, query, body = matched.groups()
    params = tuple(sorted(tuple(pair.split("=", 1)) for pair in (query or "").split("&") if pair))
    return cluster, Call(method, path, params, json.loads(body) if body else None, has_body=bool(body))


async def send(admin: AdminClient, call: Call) -> None:
    """Send a printed call as it is printed."""
    if call.method == "GET":
        await admin.get(call.path, **dict(call.params))
    else:
        await admin.send(call)


def hazards(finding: Finding) -> Iterator[tuple[Call, str]]:
    """The printed calls that the hazard tables do not let pass without a person's permission, with the reason."""
    for cluster, call in calls(finding.call):
        for rule in CALL_RULES:
            if call.method != "GET" and rule.matches(call, cluster) and rule.risk.hazard.needs_permission:
                yield call, rule.risk.reason


PERMITTED = {
    "flag-left-elsewhere": "or move the namespace with this run",
    "both-sides-flagged": "and on no other cluster",
    "both-flagged": "its topics there accept messages",
    "partitions-differ": "if no consumer on",
}
"""Findings whose call has a hazard → the precondition in their text; each is executed on real clusters."""

EXECUTED = frozenset(
    {
        *PERMITTED,
        "auto-creation-differs",
        "auto-subscription-differs",
        "copy-not-kept",
        "dedup-default-differs",
        "migrated-property",
        "quota-shorter-than-lag",
        "namespace-migrated",
        "redirect-left-on-green",
        "redirect-lost",
        "redirect-to-another-cluster",
        "replicated-flag-differs",
        "resource-group-differs",
        "retention-default-differs",
        "retention-shorter-than-lag",
        "role-only-on-target",
        "schema-incompatible",
        "schema-strategy-differs",
        "too-many-subscriptions",
        "too-many-topics",
        "ttl-default-differs",
        "ttl-shorter-than-lag",
    }
)
"""Findings whose calls are executed on real clusters, by the tests of contract/*/test_remedies.py."""

BY_HAND: dict[str, tuple[str, ...]] = {
    # A wrong step could cut clients off or delete messages: the text names its precondition.
    "abandoned-subscription": ("Delete it only if no application needs its messages", "it is transferred"),
    "blue-broker-unhealthy": ("Restart no broker of blue while a migrated namespace drains",),
    "blue-is-migrated": ("without a stored redirect", "choose another cluster"),
    "broker-not-readable": ("Restart no broker while a migrated namespace drains",),
    "brokers-disagree": ("while no migration drains",),
    "auto-resource-creation-on": ("Restart no broker while a migrated namespace drains",),
    "clients-on-blue": ("they are redirected to green", "blue does not redirect this namespace"),
    "green-in-use": ("leave them and find out",),
    "green-is-migrated": ("without a stored redirect", "choose another cluster"),
    "green-not-in-list": ("leave the other clusters in it",),
    "migration-check-off": ("Restart no broker while a migrated namespace drains",),
    "migration-check-seldom": ("Restart no broker while a migrated namespace drains",),
    "named-like-a-partition": ("no client, no subscription and storageSize 0",),
    "namespace-deleted": ("without force",),
    "open-on-blue": ("take the namespace out", "no entries, subscriptions or clients"),
    "other-run": ("never while one of its tasks runs", "If its process has died"),
    "partitioned-on-one-side": ("no client, no subscription and storageSize 0",),
    "partitions-grow": ("while no consumer needs order",),
    "peer-address-local": ("keep its other fields and its credentials",),
    "peer-address-missing": ("keep its other fields and its credentials",),
    "green-written-to": ("find the cause, then verify again",),
    "proof-too-old": ("verify again",),
    "settings-changed": ("find the cause, then verify again",),
    "topics-changed": ("then start it again",),
    "removal-not-allowed": ("allow_removal",),
    "replicates-into-blue": ("when its replication backlog to blue is 0",),
    "replicator-disconnected": ("leave all other clusters in it",),
    "schema-only-on-target": ("Do not delete it",),
    "security-differs": ("give every client credentials", "are refused from then on"),
    "superuser-only-on-source": ("only roles that administer the whole cluster",),
    "system-topic-differs": ("keep it", "has no policy of its own"),
    "topic-terminated": ("only if no application writes to it there",),
    "topic-terminated-on-target": ("keep it", "no client, no subscription and storageSize 0"),
    # The broker refuses what would lead to this finding, or it needs another machine: the call is checked as a value.
    "cluster-not-allowed": ("allow the tenant these clusters",),
    # A person changes an application, a connection, a certificate, broker.conf, or the selection: nothing is deleted.
    "authentication-provider-missing": ("add the provider",),
    "behaves-differently": ("nothing changes there",),
    "certificate-not-trusted": ("both authorities",),
    "client-cannot-follow": ("upgrade this application",),
    "client-may-hang": ("plan a restart",),
    "client-needs-tls-url": ("nothing to do",),
    "client-repeats": ("deduplication",),
    "client-unknown": ("identify the client",),
    "clocks-differ": ("NTP",),
    "cluster-unknown-to-target": ("is to replicate to it",),
    "copied-and-redirected": ("replicate_then_switch",),
    "credentials-refused-by-green": ("accept the tokens",),
    "dag-may-become-stale": ("restart the DAG processor",),
    "dedup-before-fix": ("upgrade",),
    "dynamic-settings-differ": ("some may belong to one cluster only",),
    "delayed-delivery-off": ("set delayedDeliveryEnabled=true",),
    "delayed-messages": ("wait until they are delivered",),
    "entry-filter-missing": ("install the filter",),
    "flags-unknown": ("superuser's token",),
    "functions-in-namespace": ("create them on green",),
    "functions-unknown": ("make the functions worker answer",),
    "green-namespace-missing": ("let this run prepare green",),
    "green-policies-differ": ("let this run prepare green",),
    "green-schemas-missing": ("let this run prepare green",),
    "green-subscriptions-missing": ("let this run prepare green",),
    "green-tenant-differs": ("let this run prepare green",),
    "green-topic-policies-differ": ("let this run prepare green",),
    "green-topics-missing": ("let this run prepare green",),
    "history-cannot-return": ("the history stays on green",),
    "inactive-topics-default-differs": ("nothing if a dynamic setting is the cause",),
    "max-message-size-smaller": ("set maxMessageSize=",),
    "namespace-missing": ("correct 'namespaces'",),
    "no-proof": ("run verify_clusters", "clear the task verify_copy"),
    "no-right-to-copy": ("administrator of the tenant",),
    "non-durable-consumer": ("nothing if they may start",),
    "non-persistent-topic": ("stop its producers",),
    "not-readable": ("run again",),
    "not-settable": ("superuser",),
    "not-visible": ("superuser",),
    "offload-driver": ("install the offloader",),
    "pattern-consumer-possible": ("before blue may delete its topics",),
    "peer-unreachable-from-here": ("open a connection",),
    "persistence-too-wide": ("or more in broker.conf",),
    "policies-invalid": ("correct the policy",),
    "policy-unknown-to-target": ("accept that the policy has no effect",),
    "reader-stalls": ("start them against green",),
    "redirect-kind-missing": ("make sure that no client of blue uses it",),
    "redirect-not-green": ("correct the address",),
    "redirect-not-verified": ("green's own brokers",),
    "redirect-to-other-addresses": ("set the stored addresses in the connection",),
    "redirect-unknown": ("GET /admin/v2/clusters/",),
    "redirect-unreachable": ("correct the address",),
    "remote-topic-creation-off": ("create topics on",),
    "replicated-subscriptions-off": ("set enableReplicatedSubscriptions=true",),
    "replication-backlog": ("wait until it is near 0",),
    "resource-group-missing": ("on both clusters",),
    "resource-not-readable": (
        "leave it out of the selection",
        "give the role of this connection the right",
        "then read the cluster again",
    ),
    "role-missing-on-green": ("grant it on green",),
    "same-cluster-name": ("use two connections",),
    "schema-default-differs": ("nothing changes there",),
    "schema-history-differs": ("nothing, if",),
    "schema-undecided": ("this call registers nothing",),
    "schema-update-off-for-replicator": ("register every schema on both",),
    "shadow-topic": ("nothing, if",),
    "shared-configuration-store": ("do not copy",),
    "still-draining": ("let them drain",),
    "subscription-not-addressable": ("use another subscription name",),
    "superuser-needed": ("token of a superuser",),
    "target-older": ("upgrade the target",),
    "too-many-namespaces": ("or more in broker.conf",),
    "too-many-partitions": ("or more in broker.conf",),
    "too-many-tenants": ("or more in broker.conf",),
    "topic-not-readable": ("run again",),
    "topic-policies-off": ("=true in broker.conf",),
    "transactions-in-use": ("stop the transactional applications",),
    "transactions-off": ("set transactionCoordinatorEnabled=true",),
    "version-unsupported": ("upgrade the brokers",),
    "versions-mixed": ("finish the rolling upgrade",),
}
"""Findings whose remedy no machine executes → what their texts must say: the precondition, or that nothing is
deleted."""


def require_harmless(finding: Finding) -> None:
    """A call with a hazard is printed with its precondition only, and a remedy by hand says its own."""
    printed = [call for call, _ in hazards(finding)]
    assert not printed or PERMITTED.get(finding.id, "-") in finding.remedy, f"{finding.text()}\n{printed}"
    if finding.id in BY_HAND:
        assert any(phrase in finding.remedy for phrase in BY_HAND[finding.id]), finding.text()
