"""What stands in the way of making a target equal to a source, with consequence and remedy (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pulsar_fleet.change.findings import Finding, Severity
from pulsar_fleet.change.translation import translate_snapshot
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.policy_documents import comparable, problems
from pulsar_fleet.cluster.states import Snapshot, version_numbers
from pulsar_fleet.onboarding.pair import Pair, blocker, warning
from pulsar_fleet.onboarding.topic_checks import (
    names_do_not_clash,
    special_topics_are_told,
    topics_have_the_same_shape,
)

OLDEST_SUPPORTED = "4.0"
_CREATION_SETTINGS = ("allowAutoTopicCreation", "allowAutoTopicCreationType", "defaultNumPartitions")


Check = Callable[[Pair], Iterator[Finding]]


def check_compatibility(source: Snapshot, target: Snapshot) -> tuple[Finding, ...]:
    """Every finding of every check, blockers first; an empty answer means: go."""
    wanted, _ = translate_snapshot(source, target)
    pair = Pair(source, target, wanted)
    found = [finding for check in CHECKS for finding in check(pair)]
    return tuple(sorted(found, key=lambda one: (one.severity is not Severity.BLOCKER, one.id, one.resource)))


def clusters_are_two(pair: Pair) -> Iterator[Finding]:
    """Under one name two clusters cannot be told apart in any list."""
    if pair.source.cluster == pair.target.cluster:
        yield blocker(
            "same-cluster-name",
            pair.target.cluster,
            f"both clusters are called {pair.source.cluster}",
            "Either both connections lead to one cluster, or cluster lists could not tell the two apart.",
            "use two connections to two clusters with different clusterName.",
        )


def brokers_run_supported_versions(pair: Pair) -> Iterator[Finding]:
    """What was measured holds from 4.0; a target older than its source lacks what the source may use."""
    for snapshot in (pair.source, pair.target):
        versions = sorted({broker.version for broker in snapshot.brokers}, key=version_numbers)
        if versions and version_numbers(versions[0]) < version_numbers(OLDEST_SUPPORTED):
            yield blocker(
                "version-unsupported",
                f"cluster {snapshot.cluster}",
                f"brokers run {', '.join(versions)}",
                "Policies of this version were never compared by us; some would be lost in silence.",
                f"upgrade the brokers to {OLDEST_SUPPORTED} or newer.",
            )
        if len(versions) > 1:
            yield warning(
                "versions-mixed",
                f"cluster {snapshot.cluster}",
                f"brokers run {', '.join(versions)}",
                "Which broker answers decides which policies exist.",
                "finish the rolling upgrade first.",
            )
    old, new = pair.target.oldest_version(), pair.source.oldest_version()
    if version_numbers(old)[:2] < version_numbers(new)[:2]:
        yield warning(
            "target-older",
            f"cluster {pair.target.cluster}",
            pair.values(new, old),
            "Policies that only the newer version knows are left out on the target.",
            "upgrade the target, or accept what the plan lists as left alone.",
        )


def topics_are_created_alike(pair: Pair) -> Iterator[Finding]:
    """What happens on the first use of a topic that does not exist yet."""
    ours, theirs = (_settings(snapshot) for snapshot in (pair.source, pair.target))
    for key in _CREATION_SETTINGS:
        if ours.get(key) != theirs.get(key) and ours and theirs:
            yield warning(
                "auto-creation-differs",
                f"cluster {pair.target.cluster}",
                f"{key}: {pair.values(ours.get(key), theirs.get(key))}",
                "Topics that clients create by using them come out different on the two clusters.",
                f"set {key} alike (it is dynamic), or set the policy autoTopicCreation on each namespace.",
            )
    for name, wanted, found in _shared_namespaces(pair):
        field = "autoTopicCreationOverride"
        if wanted.get(field) != found.get(field):
            yield warning(
                "auto-creation-differs",
                name,
                f"{field}: {pair.values(wanted.get(field), found.get(field))}",
                "Topics that clients create by using them come out different on the two clusters.",
                "the plan sets it; until then create topics by hand.",
            )


def schemas_are_judged_alike(pair: Pair) -> Iterator[Finding]:
    """A strategy that differs makes one side refuse what the other takes, and replication stops without an error."""
    for name, wanted, found in _shared_namespaces(pair):
        for field in ("schema_compatibility_strategy", "is_allow_auto_update_schema", "schema_validation_enforced"):
            if wanted.get(field) != found.get(field):
                yield warning(
                    "schema-strategy-differs",
                    name,
                    f"{field}: {pair.values(wanted.get(field), found.get(field))}",
                    "A schema that one cluster takes is refused by the other, and replication stops without an error.",
                    "the plan sets it.",
                )


def policies_can_be_created(pair: Pair) -> Iterator[Finding]:
    """The broker's creating call checks little, so what it would take and then break on is found here."""
    held = {one.name for one in pair.target.namespaces}
    for namespace in pair.wanted.namespaces:
        if namespace.name in held:
            continue
        for problem in problems(namespace.policies, pair.target.cluster):
            yield blocker(
                "policies-invalid",
                namespace.name,
                problem,
                f"{pair.target.cluster} would store it and fail later; the namespace is not created.",
                f"correct the policy on {pair.source.cluster} and take the snapshot again.",
            )
        group = namespace.policies.get("resource_group_name")
        if group and group not in pair.target.resource_groups:
            yield warning(
                "resource-group-missing",
                namespace.name,
                f"resource group {group!r} is not on {pair.target.cluster}",
                "Its limits do not apply there.",
                f"create the resource group on {pair.target.cluster} first.",
            )


def offloaders_are_there(pair: Pair) -> Iterator[Finding]:
    """A driver that the brokers do not have keeps topics from being loaded at all."""
    for namespace in pair.wanted.namespaces:
        driver = (namespace.policies.get("offload_policies") or {}).get("managedLedgerOffloadDriver")
        if driver:
            yield warning(
                "offload-driver",
                namespace.name,
                f"managedLedgerOffloadDriver {driver!r}",
                f"Brokers of {pair.target.cluster} without this offloader cannot load any topic of the namespace.",
                f"make sure that every broker of {pair.target.cluster} has the offloader installed.",
            )


CHECKS: tuple[Check, ...] = (
    clusters_are_two,
    brokers_run_supported_versions,
    topics_have_the_same_shape,
    names_do_not_clash,
    topics_are_created_alike,
    schemas_are_judged_alike,
    policies_can_be_created,
    offloaders_are_there,
    special_topics_are_told,
)


def _shared_namespaces(pair: Pair) -> Iterator[tuple[str, dict[str, Json], dict[str, Json]]]:
    held = {one.name: one.policies for one in pair.target.namespaces}
    for namespace in pair.wanted.namespaces:
        if namespace.name in held:
            own = pair.target.cluster
            yield namespace.name, comparable(namespace.policies, own), comparable(held[namespace.name], own)


def _settings(snapshot: Snapshot) -> dict[str, Json]:
    return dict(snapshot.brokers[0].configuration) if snapshot.brokers else {}
