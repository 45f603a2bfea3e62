"""Limits of the target, and bookies that it lacks, because of which it would refuse a part of the copy (pure).

0 means no limit. A namespace's own limit overrides the brokers'.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pulsar_fleet.cluster.admin.call import bare, with_body
from pulsar_fleet.cluster.admin.partial_reads import Area
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD
from pulsar_fleet.cluster.policies.setters import policy_calls
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD, Scope, topic_policy_calls
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.planning.changes.clusters import group_path
from pulsar_fleet.preflight.bookies import affinity_groups
from pulsar_fleet.preflight.context import Pair, blocker, call_text, in_broker_conf, number, warning
from pulsar_fleet.preflight.findings import Finding

_GROUPS = Area.RESOURCE_GROUPS
_PERSISTENCE = {
    "bookkeeperEnsemble": "managedLedgerMaxEnsembleSize",
    "bookkeeperWriteQuorum": "managedLedgerMaxWriteQuorum",
    "bookkeeperAckQuorum": "managedLedgerMaxAckQuorum",
}


def tenants_fit(pair: Pair) -> Iterator[Finding]:
    """The broker refuses (412) a tenant beyond `maxTenants`."""
    most = number(pair.target, "maxTenants")
    names = {tenant.name for tenant in pair.target.tenants}
    new = [tenant.name for tenant in pair.translated.tenants if tenant.name not in names]
    existing = pair.probes.target.tenants if pair.probes.target.tenants is not None else len(names)
    if most and new and existing + len(new) > most:
        yield _too_many(
            pair,
            "too-many-tenants",
            f"cluster {pair.target.cluster}",
            f"{existing} tenants, {len(new)} to be created, maxTenants = {most}",
            f"{existing + len(new) - most} tenants are refused, with everything in them.",
            "maxTenants",
            (existing + len(new), most),
        )


def namespaces_fit(pair: Pair) -> Iterator[Finding]:
    """The broker refuses (412) a namespace beyond `maxNamespacesPerTenant`."""
    most = number(pair.target, "maxNamespacesPerTenant")
    if not most:
        return
    names = {namespace.name for namespace in pair.target.namespaces}
    for tenant in pair.translated.tenants:
        inside = f"{tenant.name}/"
        planned = [state.name for state in pair.translated.namespaces if state.name.startswith(inside)]
        new = [name for name in planned if name not in names]
        listed = sum(name.startswith(inside) for name in names)
        existing = pair.probes.target.namespaces.get(tenant.name, listed)
        if new and existing + len(new) > most:
            yield _too_many(
                pair,
                "too-many-namespaces",
                f"tenant {tenant.name}",
                f"{existing} namespaces, {len(new)} to be created, maxNamespacesPerTenant = {most}",
                f"{existing + len(new) - most} namespaces are refused, with everything in them.",
                "maxNamespacesPerTenant",
                (existing + len(new), most),
            )


def topics_fit(pair: Pair) -> Iterator[Finding]:
    """The broker refuses (412) topics beyond the limit; each partition counts."""
    target_counts = {topic.name: max(1, topic.partitions) for topic in pair.target.topics}
    for namespace in pair.translated.namespaces:
        own = namespace.policies.get("max_topics_per_namespace")
        most = int(own) if own is not None else number(pair.target, "maxTopicsPerNamespace")
        inside = [topic for topic in pair.translated.topics if _within(topic.name, namespace.name)]
        source_counts = {topic.name: max(1, topic.partitions) for topic in inside}
        existing = {name: count for name, count in target_counts.items() if _within(name, namespace.name)}
        total = sum(max(count, existing.get(name, 0)) for name, count in {**existing, **source_counts}.items())
        if most <= 0 or total <= most or not set(source_counts) - set(existing):
            continue
        path = f"/namespaces/{NamespaceName.parse(namespace.name).path}/maxTopicsPerNamespace"
        owner = pair.owner(namespace.name)
        yield blocker(
            "too-many-topics",
            namespace.name,
            f"{total} topics and partitions after the copy, at most {most} allowed"
            + ("" if own is not None else " by maxTopicsPerNamespace of the brokers"),
            f"The last {total - most} topics and partitions are refused.",
            f"raise the limit of the namespace on {owner} and plan again."
            if own is not None
            else f"set the limit that applies on {pair.source.cluster}, or a higher one, on the namespace on {owner} "
            f"(0: none) and plan again{'' if namespace.name in pair.kept else ': the plan copies it'}.",
            call=call_text(owner, with_body("POST", path, _limit(pair, own, "maxTopicsPerNamespace", total))),
            values=(total, most),
        )


def partitions_fit(pair: Pair) -> Iterator[Finding]:
    """The broker refuses (406) a topic with more partitions than it allows."""
    most = number(pair.target, "maxNumPartitionsPerPartitionedTopic")
    target_counts = {topic.name: topic.partitions for topic in pair.target.topics}
    for topic in pair.translated.topics if most else ():
        if topic.partitions > max(most, target_counts.get(topic.name, 0)):
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
    """The broker refuses (412) a subscription beyond the limit of its topic, which holds for each partition alone."""
    by_topic: dict[str, dict[str, set[str]]] = {}
    for subscription in (*pair.translated.subscriptions, *pair.target.subscriptions):
        by_topic.setdefault(subscription.topic, {}).setdefault(subscription.partition, set()).add(subscription.name)
    policies = {namespace.name: namespace.policies for namespace in pair.translated.namespaces}
    own = {state.topic: state.policies.get("maxSubscriptionsPerTopic") for state in pair.translated.topic_policies}
    existing = {(subscription.partition, subscription.name) for subscription in pair.target.subscriptions}
    for topic, by_partition in sorted(by_topic.items()):
        partition, names = max(by_partition.items(), key=lambda item: len(item[1]))
        document = policies.get(str(TopicName.parse(topic).namespace), {})
        limits = (own.get(topic), document.get("max_subscriptions_per_topic"))
        own_limit = next((int(limit) for limit in limits if limit is not None), None)
        most = number(pair.target, "maxSubscriptionsPerTopic") if own_limit is None else own_limit
        if 0 < most < len(names) and any((partition, name) not in existing for name in names):
            yield blocker(
                "too-many-subscriptions",
                topic,
                f"{len(names)} subscriptions after the copy, at most {most} allowed",
                f"The last {len(names) - most} are refused, and their consumers start without their backlog.",
                f"raise the limit of the topic on {pair.source.cluster} (0: none) and take the snapshot again.",
                call=call_text(
                    pair.source.cluster,
                    with_body(
                        "POST",
                        f"/{TopicName.parse(topic).path}/maxSubscriptionsPerTopic",
                        _limit(pair, own_limit, "maxSubscriptionsPerTopic", len(names)),
                    ),
                ),
                values=(len(names), most),
            )


def persistence_fits(pair: Pair) -> Iterator[Finding]:
    """The broker refuses (400) more replicas of a message than it allows."""
    namespaces = [(state.name, state.policies) for state in pair.translated.namespaces]
    topics = [(state.topic, state.policies) for state in pair.translated.topic_policies]
    for name, policies in (*namespaces, *topics):
        persistence: JsonObject = policies.get("persistence") or {}
        for field, key in _PERSISTENCE.items():
            most, copies = number(pair.target, key), int(persistence.get(field) or 0)
            if most and copies > most:
                yield _too_many(
                    pair,
                    "persistence-too-wide",
                    name,
                    f"{field} = {copies}, {key} = {most}",
                    "The policy is refused; of a namespace to be created, everything in it.",
                    key,
                    (copies, most),
                )


def messages_fit(pair: Pair) -> Iterator[Finding]:
    """The target must accept every message that the source accepted."""
    ours, theirs = (number(snapshot, "maxMessageSize") for snapshot in (pair.source, pair.target))
    if theirs and ours > theirs:
        yield warning(
            "max-message-size-smaller",
            f"cluster {pair.target.cluster}",
            f"maxMessageSize: {pair.values(ours, theirs)} bytes",
            "The target refuses larger messages, and replication of a topic stops at the first one.",
            f"set nettyMaxFrameSizeBytes of {pair.target.cluster}'s bookies above {ours} first, then "
            f"{in_broker_conf(f'maxMessageSize={ours}', 'its brokers')}",
            values=(ours, theirs),
        )


def resource_groups_fit(pair: Pair) -> Iterator[Finding]:
    """Without the resource group, or with different limits, the target throttles other rates than the source.

    A namespace that is created with a group that does not exist is accepted (observed, 4.2.4); a setter is refused.
    """
    source = {state.name: state.limits for state in pair.source.resource_groups}
    target = {state.name: state.limits for state in pair.target.resource_groups}
    planned = {state.name for state in pair.translated.resource_groups}
    used: dict[str, list[str]] = {}
    for namespace in pair.translated.namespaces:
        if group := namespace.policies.get("resource_group_name"):
            used.setdefault(str(group), []).append(namespace.name)
    for group, namespaces in sorted(used.items()):
        path = group_path(group)
        limits = source.get(group, {})
        if group not in target and group not in source and not pair.target.hides(_GROUPS):
            yield warning(
                "resource-group-missing",
                namespaces[0],
                f"{pair.target.cluster} has no resource group {group!r}",
                "Its limits do not apply there.",
                f"nothing, if no limit is meant to apply: {pair.source.cluster} does not have it either. Else create "
                f"it on both clusters; from then on {len(namespaces)} namespaces share its limits on each.",
            )
        elif group in source and group not in target | dict.fromkeys(planned) and not pair.target.hides(_GROUPS):
            yield warning(
                "resource-group-not-copied",
                namespaces[0],
                f"{pair.target.cluster} has no resource group {group!r}, and this plan creates none",
                f"The limits that {counted(len(namespaces), 'namespace')} shares on {pair.source.cluster} do not apply "
                f"on {pair.target.cluster}.",
                f"create the group with the limits of {pair.source.cluster}, if no other namespace of "
                f"{pair.target.cluster} names it: it limits all that do.",
                call=call_text(pair.target.cluster, with_body("PUT", path, limits)),
                values=(limits, None),
            )
        elif group in target and group in source and target[group] != limits:
            yield warning(
                "resource-group-differs",
                f"resource group {group}",
                pair.values(limits, target[group]),
                f"{len(namespaces)} namespaces are throttled differently than on {pair.source.cluster}.",
                f"set the limits of {pair.source.cluster}, if no other namespace of {pair.target.cluster} uses this "
                "group: "
                "the limits are shared by all that do.",
                call=call_text(pair.target.cluster, with_body("PUT", path, limits)),
                values=(limits, target[group]),
            )


def _limit(pair: Pair, own: int | None, key: str, needed: int) -> int:
    """A limit that fits and is not lower than what applies on the source now, where 0 means none."""
    applies = number(pair.source, key) if own is None else own
    return max(applies, needed) if applies else 0


def _too_many(
    pair: Pair, id_: str, resource: str, evidence: str, consequence: str, key: str, values: tuple[int, int]
) -> Finding:
    """Limits of tenants, namespaces and partitions are dynamic, and an override hides what broker.conf says."""
    target, needed = pair.target.cluster, values[0]
    if key in _PERSISTENCE.values():
        remedy, call = in_broker_conf(f"{key}={needed} or more", f"every broker of {target}"), ""
    else:
        remedy = f"if {key} of {target} is still lower, raise it to {needed} or more; it is dynamic: restart no broker."
        settings = "/brokers/configuration"
        call = call_text(target, bare("GET", f"{settings}/runtime"), bare("POST", f"{settings}/{key}/{needed}"))
    return blocker(id_, resource, evidence, consequence, remedy, call=call, values=values)


def _within(topic: str, namespace: str) -> bool:
    return topic.startswith(f"persistent://{namespace}/")


_ENSEMBLE, _WRITES = "bookkeeperEnsemble", "bookkeeperWriteQuorum"
_DEFAULT = "managedLedgerDefaultEnsembleSize"
_UNREADABLE = (
    "No ledger can be created there: the topics can be neither created nor read, and calls about them time out."
)


def bookies_suffice(pair: Pair) -> Iterator[Finding]:
    """Ensembles of namespaces and topics, and of the target's brokers, against its registered bookies.

    Observed on 4.2.4: the policy is accepted, the topic fails later. The list has bookies that are down too.
    """
    bookies, target = pair.probes.target.bookies, pair.target.cluster
    if bookies is None:
        return
    asked = [*_asked(pair)]
    default = number(pair.target, _DEFAULT)
    largest = max([default, *(int(policy[_ENSEMBLE]) for _, policy, _ in asked)])
    if bookies.count is None:
        if largest > 1:
            yield warning(
                "bookies-unknown",
                f"cluster {target}",
                f"{largest} bookies are asked for; how many {target} has is unknown: {bookies.unread}",
                "If it has fewer, no ledger can be created there, and the topics cannot be used.",
                f"count the bookies of {target}, or use a superuser's token.",
                values=(largest, None),
            )
        return
    for owner, policy, scope in asked:
        if int(policy[_ENSEMBLE]) > bookies.count:
            yield _too_few(pair, owner, policy, scope, bookies.count)
    if default > bookies.count:
        yield blocker(
            "bookies-missing",
            f"cluster {target}",
            f"{_DEFAULT} = {default}, and {counted(bookies.count, 'bookie')}",
            _UNREADABLE,
            f"add bookies to {target} until it has {default}.",
            values=(default, bookies.count),
        )


def bookie_groups_exist(pair: Pair) -> Iterator[Finding]:
    """The groups that the bookie affinity of namespaces names, against those of the target's bookies.

    Observed on 4.2.4: a ledger of such a namespace uses no bookie of another group. Without enough others the setter
    answers 204, and topics can be neither created nor loaded (500, "Not enough non-faulty bookies available").
    """
    bookies, target = pair.probes.target.bookies, pair.target.cluster
    if bookies is None or bookies.count is None:
        return
    for namespace in pair.translated.namespaces:
        groups = affinity_groups(namespace.policies.get("bookie_affinity"))
        if groups and bookies.groups is None:
            yield warning(
                "bookies-unknown",
                namespace.name,
                f"bookie affinity to {listed(groups)}; the groups of {target} are unknown: {bookies.unread}",
                "If it lacks them, its ledgers are placed otherwise, or cannot be created.",
                f"read the groups of {target} (pulsar-admin bookies racks-placement), or use a superuser's token.",
            )
        if missing := bookies.lacking(groups):
            asked = int((namespace.policies.get("persistence") or {}).get(_ENSEMBLE) or number(pair.target, _DEFAULT))
            usable = bookies.usable(groups)
            yield (blocker if usable < max(1, asked) else warning)(
                "bookie-group-missing",
                namespace.name,
                f"bookie affinity to {listed(groups)}; {target} has no bookie in {listed(missing)}, and "
                f"{counted(usable, 'bookie')} that {'is' if usable == 1 else 'are'} in a named group or in none",
                _UNREADABLE
                if usable < max(1, asked)
                else f"Nothing keeps its ledgers on {target} apart from those of other namespaces.",
                f"put bookies of {target} into {listed(missing)} (pulsar-admin bookies set-bookie-rack --group), only "
                "those that no namespace of another group needs: its ledgers use them no more.",
                values=(list(groups), sorted(bookies.groups or ())),
            )


def _asked(pair: Pair) -> Iterator[tuple[NamespaceName | TopicName, JsonObject, Scope]]:
    for namespace in pair.translated.namespaces:
        if (namespace.policies.get("persistence") or {}).get(_ENSEMBLE):
            yield NamespaceName.parse(namespace.name), namespace.policies["persistence"], Scope.LOCAL
    for topic in pair.translated.topic_policies:
        if (topic.policies.get("persistence") or {}).get(_ENSEMBLE):
            yield TopicName.parse(topic.topic), topic.policies["persistence"], Scope(topic.scope)


def _too_few(
    pair: Pair, owner: NamespaceName | TopicName, policy: Mapping[str, Json], scope: Scope, count: int
) -> Finding:
    """A smaller ensemble keeps the number of copies of a message while it is not below the write quorum."""
    source, target = pair.owner(str(owner)), pair.target.cluster
    copies = int(policy.get(_WRITES) or 0)
    remedy, call = f"add bookies to {target} until it has {policy[_ENSEMBLE]}", ""
    if 0 < copies <= count:
        smaller = {**policy, _ENSEMBLE: count}
        remedy += (
            f", or set {_ENSEMBLE} to {count} on {source} and plan again: each message keeps its {copies} "
            "copies, on fewer bookies"
        )
        call = "" if scope is Scope.GLOBAL else _setter(source, owner, smaller)
    else:
        remedy += f"; no policy with fewer bookies keeps the {copies} copies of each message"
    return blocker(
        "bookies-missing",
        str(owner),
        f"{_ENSEMBLE} = {policy[_ENSEMBLE]} and {_WRITES} = {copies} on {source}; {target} has "
        f"{counted(count, 'bookie')}",
        _UNREADABLE,
        f"{remedy}.",
        call=call,
        values=(policy[_ENSEMBLE], count),
    )


def _setter(source: str, owner: NamespaceName | TopicName, policy: JsonObject) -> str:
    if isinstance(owner, TopicName):
        calls = topic_policy_calls(TOPIC_BY_FIELD["persistence"], owner, Scope.LOCAL, None, policy)
    else:
        calls = policy_calls(BY_FIELD["persistence"], owner, None, policy)
    return call_text(source, *calls)
