"""Limits of the target that would refuse the copy, or part of it, half-way (pure).

0 means no limit for every one of them. A namespace's own limit counts before the brokers'.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from pulsar_fleet.cluster.admin.call import with_body
from pulsar_fleet.cluster.admin.read_problems import Area
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.preflight.context import Pair, blocker, call_text, number, warning
from pulsar_fleet.preflight.findings import Finding

_PERSISTENCE = {
    "bookkeeperEnsemble": "managedLedgerMaxEnsembleSize",
    "bookkeeperWriteQuorum": "managedLedgerMaxWriteQuorum",
    "bookkeeperAckQuorum": "managedLedgerMaxAckQuorum",
}


def tenants_fit(pair: Pair) -> Iterator[Finding]:
    """The broker refuses (412) a tenant beyond `maxTenants`."""
    most = number(pair.target, "maxTenants")
    held = {one.name for one in pair.target.tenants}
    new = [one.name for one in pair.wanted.tenants if one.name not in held]
    there = pair.probes.target.tenants if pair.probes.target.tenants is not None else len(held)
    if most and new and there + len(new) > most:
        yield _too_many(
            pair,
            "too-many-tenants",
            f"cluster {pair.target.cluster}",
            f"{there} tenants, {len(new)} more to come, maxTenants = {most}",
            f"{there + len(new) - most} tenants are refused, with everything in them.",
            "maxTenants",
            (there + len(new), most),
        )


def namespaces_fit(pair: Pair) -> Iterator[Finding]:
    """The broker refuses (412) a namespace beyond `maxNamespacesPerTenant`."""
    most = number(pair.target, "maxNamespacesPerTenant")
    if not most:
        return
    held = {one.name for one in pair.target.namespaces}
    for tenant in pair.wanted.tenants:
        new = [one for one in _namespaces_of(pair, tenant.name) if one not in held]
        known = sum(name.partition("/")[0] == tenant.name for name in held)
        there = pair.probes.target.namespaces.get(tenant.name, known)
        if new and there + len(new) > most:
            yield _too_many(
                pair,
                "too-many-namespaces",
                f"tenant {tenant.name}",
                f"{there} namespaces, {len(new)} more to come, maxNamespacesPerTenant = {most}",
                f"{there + len(new) - most} namespaces are refused, with everything in them.",
                "maxNamespacesPerTenant",
                (there + len(new), most),
            )


def topics_fit(pair: Pair) -> Iterator[Finding]:
    """The broker refuses (412) topics beyond the limit; each partition counts."""
    held = {topic.name: max(1, topic.partitions) for topic in pair.target.topics}
    for namespace in pair.wanted.namespaces:
        own = namespace.policies.get("max_topics_per_namespace")
        most = int(own) if own is not None else number(pair.target, "maxTopicsPerNamespace")
        wanted = {one.name: max(1, one.partitions) for one in pair.wanted.topics if _within(one.name, namespace.name)}
        there = {name: count for name, count in held.items() if _within(name, namespace.name)}
        total = sum(max(count, there.get(name, 0)) for name, count in {**there, **wanted}.items())
        if most <= 0 or total <= most or not set(wanted) - set(there):
            continue
        path = f"/namespaces/{NamespaceName.parse(namespace.name).path}/maxTopicsPerNamespace"
        yield blocker(
            "too-many-topics",
            namespace.name,
            f"{total} topics and partitions to be there, at most {most} allowed"
            + ("" if own is not None else " by maxTopicsPerNamespace of the brokers"),
            f"The last {total - most} topics and partitions are refused.",
            f"raise the limit on {pair.source.cluster} and take the snapshot again."
            if own is not None
            else f"give the namespace a limit of its own on {pair.source.cluster}, or raise it on the brokers.",
            call=call_text(pair.source.cluster, with_body("POST", path, total)),
            values=(total, most),
        )


def partitions_fit(pair: Pair) -> Iterator[Finding]:
    """The broker refuses (406) a topic with more partitions than it allows."""
    most = number(pair.target, "maxNumPartitionsPerPartitionedTopic")
    held = {topic.name: topic.partitions for topic in pair.target.topics}
    for topic in pair.wanted.topics if most else ():
        if topic.partitions > max(most, held.get(topic.name, 0)):
            yield _too_many(
                pair,
                "too-many-partitions",
                topic.name,
                f"{topic.partitions} partitions, maxNumPartitionsPerPartitionedTopic = {most}",
                "The topic is refused, with its schemas, policies and subscriptions.",
                "maxNumPartitionsPerPartitionedTopic",
                (topic.partitions, most),
            )


def subscriptions_fit(pair: Pair) -> Iterator[Finding]:
    """The broker refuses (412) a subscription beyond the topic's limit."""
    names: dict[str, set[str]] = {}
    for one in (*pair.wanted.subscriptions, *pair.target.subscriptions):
        names.setdefault(one.topic, set()).add(one.name)
    policies = {one.name: one.policies for one in pair.wanted.namespaces}
    own = {one.topic: one.policies.get("maxSubscriptionsPerTopic") for one in pair.wanted.topic_policies}
    held = {(one.topic, one.name) for one in pair.target.subscriptions}
    for topic, found in sorted(names.items()):
        document = policies.get(str(TopicName.parse(topic).namespace), {})
        limits = (own.get(topic), document.get("max_subscriptions_per_topic"))
        most = next((int(one) for one in limits if one is not None), number(pair.target, "maxSubscriptionsPerTopic"))
        if 0 < most < len(found) and any((topic, name) not in held for name in found):
            yield blocker(
                "too-many-subscriptions",
                topic,
                f"{len(found)} subscriptions to be there, at most {most} allowed",
                f"The last {len(found) - most} are refused, and their consumers start without their backlog.",
                f"raise the limit on {pair.source.cluster} and take the snapshot again.",
                call=call_text(
                    pair.source.cluster,
                    with_body("POST", f"/{TopicName.parse(topic).path}/maxSubscriptionsPerTopic", len(found)),
                ),
                values=(len(found), most),
            )


def persistence_fits(pair: Pair) -> Iterator[Finding]:
    """The broker refuses (400) more copies of a message than it allows."""
    for namespace in pair.wanted.namespaces:
        persistence: JsonObject = namespace.policies.get("persistence") or {}
        for field, key in _PERSISTENCE.items():
            most, wanted = number(pair.target, key), int(persistence.get(field) or 0)
            if most and wanted > most:
                yield _too_many(
                    pair,
                    "persistence-too-wide",
                    namespace.name,
                    f"{field} = {wanted}, {key} = {most}",
                    "The namespace is refused, and with it everything in it.",
                    key,
                    (wanted, most),
                )


def messages_fit(pair: Pair) -> Iterator[Finding]:
    """A message that the source took must be one that the target takes."""
    ours, theirs = (number(snapshot, "maxMessageSize") for snapshot in (pair.source, pair.target))
    if theirs and ours > theirs:
        yield warning(
            "max-message-size-smaller",
            f"cluster {pair.target.cluster}",
            f"maxMessageSize: {pair.values(ours, theirs)} bytes",
            "A larger message is refused on the target, and replication of its topic stops at it.",
            f"set maxMessageSize={ours} in broker.conf, and the bookies' nettyMaxFrameSizeBytes above it.",
            values=(ours, theirs),
        )


def resource_groups_fit(pair: Pair) -> Iterator[Finding]:
    """A group that is missing, or narrower, lets through or holds back other rates than on the source."""
    source = {one.name: one.limits for one in pair.source.resource_groups}
    target = {one.name: one.limits for one in pair.target.resource_groups}
    used: dict[str, list[str]] = {}
    for namespace in pair.wanted.namespaces:
        if group := namespace.policies.get("resource_group_name"):
            used.setdefault(str(group), []).append(namespace.name)
    for group, namespaces in sorted(used.items()):
        path = f"/resourcegroups/{quote(group, safe='')}"
        limits = source.get(group, {})
        if group not in target and group not in source and not pair.target.hides(Area.RESOURCE_GROUPS):
            yield warning(
                "resource-group-missing",
                namespaces[0],
                f"resource group {group!r} is not on {pair.target.cluster}",
                "Its limits do not apply there.",
                f"create the resource group on {pair.target.cluster} first.",
                call=call_text(pair.target.cluster, with_body("PUT", path, limits)),
            )
        elif group in target and group in source and target[group] != limits:
            yield warning(
                "resource-group-differs",
                f"resource group {group}",
                pair.values(limits, target[group]),
                f"{len(namespaces)} namespaces are throttled otherwise than on {pair.source.cluster}.",
                "set the limits of the source.",
                call=call_text(pair.target.cluster, with_body("PUT", path, limits)),
                values=(limits, target[group]),
            )


def _too_many(
    pair: Pair, id_: str, resource: str, evidence: str, consequence: str, key: str, values: tuple[int, int]
) -> Finding:
    return blocker(
        id_,
        resource,
        evidence,
        consequence,
        f"set {key}={values[0]} or more in broker.conf of every broker of {pair.target.cluster} and restart them.",
        values=values,
    )


def _namespaces_of(pair: Pair, tenant: str) -> list[str]:
    return [one.name for one in pair.wanted.namespaces if one.name.partition("/")[0] == tenant]


def _within(topic: str, namespace: str) -> bool:
    return topic.startswith(f"persistent://{namespace}/")
