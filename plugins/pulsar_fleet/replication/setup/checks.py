"""What would prevent replication, or lose something by it: findings for every link (pure)."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.planning.translation import translate_snapshot
from pulsar_fleet.preflight.bookies import Bookies
from pulsar_fleet.preflight.checks import (
    auto_creation,
    brokers,
    clusters,
    defects,
    policies,
    schemas,
    topics,
    unread,
    versions,
)
from pulsar_fleet.preflight.context import Measurements, Pair, Probes, blocker, call_text, warning
from pulsar_fleet.preflight.findings import Finding, Severity, blockers_first
from pulsar_fleet.preflight.target_limits import TABLE, Effective, effective_policies, quotas_met_by_copy
from pulsar_fleet.preflight.waivers import NOT_WAIVABLE
from pulsar_fleet.replication.replicated_namespaces import list_in_effect, topics_with_lists
from pulsar_fleet.replication.request import Request
from pulsar_fleet.replication.setup.plan import ReplicationPlan
from pulsar_fleet.replication.setup.replicated_positions import stopped_positions
from pulsar_fleet.replication.topology import Link, Topology
from pulsar_fleet.snapshot.model import Snapshot, TopicState

_SHARED: tuple[Callable[[Pair], Iterator[Finding]], ...] = (
    clusters.configuration_stores_differ,
    versions.brokers_run_supported_versions,
    topics.system_topic_partitions_match,
    topics.topic_names_do_not_clash,
    topics.topic_states_can_be_copied,
    topics.scalable_topics_are_not_copied,
    auto_creation.broker_auto_creation_matches,
    auto_creation.namespace_auto_creation_matches,
    auto_creation.replicators_can_create,
    schemas.namespace_schema_rules_match,
    brokers.deduplication_survives_replication,
    policies.namespaces_are_active,
    unread.unread_resources_are_reported,
)
"""The checks of two clusters that replication needs too."""

_STOPS_REPLICATION = frozenset({"max-message-size-smaller"})
"""Warnings of a copy of policies that are blockers here: a replicator stops at the first such message."""

NEVER: Mapping[str, str] = {
    **NOT_WAIVABLE,
    "run-not-ended": "what is written is never read back, and that run takes it away.",
}
"""Blockers that are never waived, and the certain loss."""

OF_COPIES_ONLY = frozenset({"topic-terminated", "shadow-topic", "auto-subscription-differs"})
"""Findings about what a copy leaves out, which replication does not need."""

_SAME_RULE = (
    "choose one rule and set it as a policy of the namespace on every cluster that replicates it, with "
    "`pulsar-admin namespaces set-auto-topic-creation`; topics that exist already keep their partitions."
)
REMEDIES: Mapping[str, str] = {
    "auto-creation-differs": _SAME_RULE,
    "schema-strategy-differs": "set the same policy of the namespace on both clusters before replication begins.",
}
"""Remedies that differ from those of a copy: this plan does not change policies that exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """What snapshots do not contain.

    :param wrong_addresses: link → why the cluster data that its source has does not lead to its target.
    :param producers: cluster that leaves → topic → the number of connected producers.
    :param never_used: cluster → topics that another one has too, and that hold nothing and have no client here.
    :param stored: cluster → topic under a backlog quota → bytes of its largest partition, where they could be read.
    :param bookies: cluster → its bookies.
    """

    wrong_addresses: Mapping[Link, str] = field(default_factory=dict)
    producers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    never_used: Mapping[str, Collection[str]] = field(default_factory=dict)
    stored: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    bookies: Mapping[str, Bookies] = field(default_factory=dict)


def check_replication(
    snapshots: Mapping[str, Snapshot],
    planned: ReplicationPlan,
    request: Request,
    observations: Observations,
) -> tuple[Finding, ...]:
    """Every finding, blockers first; each once, although several links may have it."""
    topology = planned.topology
    findings: dict[tuple[str, str], Finding] = {}
    found = (
        *_unfinished_runs(snapshots, planned, request),
        *_unnamed_clusters(snapshots, topology, request, planned.namespaces),
        *_lists_of_migrated(snapshots, planned),
        *_kept_local(planned),
        *_wrong_addresses(observations),
        *_producers(observations),
        *stopped_positions(snapshots, planned, request),
        *(finding for link in topology.links() for finding in _of_link(link, snapshots, observations)),
        *(
            finding
            for link in topology.links()
            if request.history
            for finding in _copied_twice(link, snapshots, planned, observations)
        ),
        *_exceeded_quotas(snapshots, planned, request, observations),
    )
    for finding in found:
        findings.setdefault((finding.id, finding.resource), finding)
    return blockers_first(findings.values())


def _lists_of_migrated(snapshots: Mapping[str, Snapshot], planned: ReplicationPlan) -> Iterator[Finding]:
    """Links that would end on a cluster which redirects their namespace: what they have sent cannot be read there."""
    for cluster, plans in planned.clusters.items():
        migrated = {row.name for row in snapshots[cluster].namespaces if row.policies.get("migrated")}
        for change in plans.ends.changes:
            if str(change.namespace) in migrated:
                yield blocker(
                    "namespace-migrated",
                    change.name,
                    f"migrated = true on {cluster}, and its list names {', '.join(change.before or ())}",
                    "Its topics do not load there, so that nobody can wait until all is sent.",
                    "leave the list as it is: nothing more is sent under the flag. fail_back_namespaces says what to "
                    "do before the namespace goes back.",
                )


def _of_link(link: Link, snapshots: Mapping[str, Snapshot], observations: Observations) -> Iterator[Finding]:
    source, target = snapshots[link.source], snapshots[link.target]
    translated, _ = translate_snapshot(source, target)
    both = [link.source, link.target]
    # This plan creates no resource groups.
    pair = Pair(source, target, _replicating(replace(translated, resource_groups=()), both))
    yield from defects.brokers_have_no_known_defect(replace(pair, source=_replicating(source, both)))
    for check in _SHARED:
        for finding in check(pair):
            if finding.id not in OF_COPIES_ONLY:
                yield replace(finding, remedy=REMEDIES.get(finding.id, finding.remedy), call=_call(finding))
    yield from _partitions(pair)
    yield from _terminated(pair)
    probes = Probes(target=Measurements(bookies=observations.bookies.get(link.target)))
    pair = replace(pair.keeping_policies(), probes=probes)
    for finding in (finding for limit in TABLE if limit.replicated for finding in limit.check(pair)):
        yield replace(finding, severity=Severity.BLOCKER) if finding.id in _STOPS_REPLICATION else finding


def _replicating(snapshot: Snapshot, clusters: Sequence[str]) -> Snapshot:
    """The snapshot as it will be: its namespaces list these clusters."""
    states = (
        replace(row, policies={**row.policies, "replication_clusters": list(clusters)}) for row in snapshot.namespaces
    )
    return replace(snapshot, namespaces=tuple(states))


def _call(finding: Finding) -> str:
    return "" if finding.id in REMEDIES else finding.call


def _partitions(pair: Pair) -> Iterator[Finding]:
    counts = {row.name: row.partitions for row in pair.target.topics}
    for row in pair.source.topics:
        other = counts.get(row.name, row.partitions)
        if other == row.partitions:
            continue
        if 0 in (other, row.partitions):
            yield blocker(
                "partitioned-on-one-side",
                row.name,
                pair.values(_shape(row.partitions), _shape(other)),
                "Replication of this topic never starts, and no statistic says why.",
                "let the applications of one cluster use a topic with another name. Delete the topic on a cluster only "
                "if its statistics there show no client, no subscription and storageSize 0.",
                values=(row.partitions, other),
            )
            continue
        smaller = pair.source.cluster if row.partitions < other else pair.target.cluster
        yield blocker(
            "partitions-differ",
            row.name,
            pair.values(row.partitions, other),
            "Replication of this topic never starts, and no statistic says why.",
            f"if no consumer on {smaller} needs the order of keys across this change, add partitions there up to "
            f"{max(row.partitions, other)}: partitions cannot be removed, and keys move to other partitions.",
            values=(row.partitions, other),
        )


def _terminated(pair: Pair) -> Iterator[Finding]:
    """Topics of the source that accept no more messages; those of a flagged namespace are a finding of their own."""
    flagged = {state.name for state in pair.source.namespaces if state.policies.get("migrated")}
    for row in pair.source.topics:
        if row.terminated and str(TopicName.parse(row.name).namespace) not in flagged:
            yield warning(
                "source-topic-terminated",
                row.name,
                f"terminated on {pair.source.cluster}",
                f"No producer can publish to it there: {pair.target.cluster} gets what is stored, if a history is "
                "asked for, and nothing new.",
                "nothing, if its owner has ended it. If applications publish to it on another cluster, replicate it "
                "from that one.",
            )


def _shape(partitions: int) -> str:
    return f"{partitions} partitions" if partitions else "not partitioned"


def topics_with_history(
    snapshots: Mapping[str, Snapshot], planned: ReplicationPlan, request: Request
) -> dict[str, dict[TopicName, int]]:
    """Cluster → its topics with their partition counts, of which a history is to be copied although both have them."""
    topics: dict[str, dict[TopicName, int]] = {}
    for link in planned.topology.links() if request.history else ():
        names = frozenset(_on_both(link, snapshots, planned))
        for cluster in (link.source, link.target):
            rows = (row for row in snapshots[cluster].topics if row.name in names)
            topics.setdefault(cluster, {}).update({TopicName.parse(row.name): row.partitions for row in rows})
    return topics


def topics_under_quotas(
    snapshots: Mapping[str, Snapshot], planned: ReplicationPlan, request: Request
) -> dict[str, dict[TopicName, int]]:
    """Cluster → its topics with their partition counts, of which a history is to be copied under a backlog quota."""
    topics: dict[str, dict[TopicName, int]] = {}
    for link in planned.topology.links() if request.history else ():
        source = snapshots[link.source]
        effective = effective_policies(source)
        for row in _copied(link, source, planned):
            topic = TopicName.parse(row.name)
            # Of an unknown size whatever limit there is is exceeded.
            if any(quotas_met_by_copy(_policies_of(effective, topic), topic, None)):
                topics.setdefault(link.source, {})[topic] = row.partitions
    return topics


def _policies_of(effective: Mapping[str, Effective], topic: TopicName) -> Effective:
    return effective.get(str(topic)) or effective[str(topic.namespace)]


def _exceeded_quotas(
    snapshots: Mapping[str, Snapshot], planned: ReplicationPlan, request: Request, observations: Observations
) -> Iterator[Finding]:
    """Backlog quotas of a source that the copy of a history would exceed; one for each place that sets one."""
    for cluster, limited in topics_under_quotas(snapshots, planned, request).items():
        effective, named = effective_policies(snapshots[cluster]), set[str]()
        sizes = observations.stored.get(cluster, {})
        for topic in limited:
            for met in quotas_met_by_copy(_policies_of(effective, topic), topic, sizes.get(str(topic))):
                call = call_text(cluster, met.call)
                if call in named:
                    continue
                named.add(call)
                yield blocker(
                    "copy-exceeds-quota",
                    str(topic),
                    met.evidence,
                    f"The replicator's cursor on {cluster} begins at the first stored message, and is backlog: until "
                    f"it has sent it, {cluster} refuses or holds producers, or moves that cursor, so that messages are "
                    "never copied.",
                    f"lift the quota on {cluster} until the history is copied, then store it again; it is "
                    f"{json.dumps(met.quota)} now.",
                    call=call,
                )


def _on_both(link: Link, snapshots: Mapping[str, Snapshot], planned: ReplicationPlan) -> Iterator[str]:
    present = {row.name for row in snapshots[link.target].topics}
    return (row.name for row in _copied(link, snapshots[link.source], planned) if row.name in present)


def _copied(link: Link, source: Snapshot, planned: ReplicationPlan) -> Iterator[TopicState]:
    """Of a link that exists already the history is not copied."""
    new = {namespace for namespace, links in planned.new_links.items() if link in links}
    kept, listed = planned.kept_local.get(link.source, ()), {*topics_with_lists(source, planned.namespaces)}
    for row in source.topics:
        topic = TopicName.parse(row.name)
        if row.name in kept:
            continue
        if link.target not in list_in_effect(source, topic) if topic in listed else str(topic.namespace) in new:
            yield row


def _copied_twice(
    link: Link, snapshots: Mapping[str, Snapshot], planned: ReplicationPlan, observations: Observations
) -> Iterator[Finding]:
    """Where one side never stored a message, nothing can be there twice: an interrupted run has created the topic."""
    unused = {name for cluster in (link.source, link.target) for name in observations.never_used.get(cluster, ())}
    for name in _on_both(link, snapshots, planned):
        if name not in unused:
            yield blocker(
                "history-on-existing-topic",
                name,
                f"{link.target} has this topic already, and {link} is new",
                f"What {link.source} stored and {link.target} already has is stored there twice.",
                f"leave out the history, or accept it if {link.target} has none of the messages: that is not certain "
                "of a topic that holds a message, has a producer or a subscription, or could not be read.",
            )


def _unfinished_runs(
    snapshots: Mapping[str, Snapshot], planned: ReplicationPlan, request: Request
) -> Iterator[Finding]:
    names = {*planned.namespaces, *(str(topic.namespace) for topic in request.topics)}
    for name, snapshot in snapshots.items():
        for state in snapshot.namespaces:
            if state.name in names and not policies.has_terminated(snapshot, state.name):
                yield from policies.unfinished_run(name, state.name, state.policies)


def _unnamed_clusters(
    snapshots: Mapping[str, Snapshot], topology: Topology, request: Request, namespaces: Sequence[str]
) -> Iterator[Finding]:
    """A cluster in a list that the run does not name: to cut it silently would end its replication."""
    for name, snapshot in snapshots.items():
        for state in snapshot.namespaces:
            listed = {*(state.policies.get("replication_clusters") or ())}
            others = sorted(listed - {*topology.clusters})
            # A run about topics extends what is in effect for them, and leaves the list of the namespace.
            if others and not request.topics and state.name in namespaces:
                yield blocker(
                    "list-names-other-cluster",
                    f"{state.name} on {name}",
                    f"replicates to {', '.join(others)}",
                    "This run does not say whether that replication stays or ends.",
                    f"name the connection of {others[0]} in 'clusters' or 'receive_only' if it stays, in 'leaving' if "
                    "it ends.",
                )


def _kept_local(planned: ReplicationPlan) -> Iterator[Finding]:
    for cluster, kept in planned.kept_local.items():
        for topic in kept:
            yield warning(
                "topic-kept-local",
                f"{topic} on {cluster}",
                f"has a list of its own, with {cluster} alone",
                f"This run leaves that list, which counts instead of the namespace's: {cluster} sends none of the "
                "messages of this topic.",
                "nothing, if that is meant; else replicate it by a run that names it in 'topics'.",
            )


def _wrong_addresses(observations: Observations) -> Iterator[Finding]:
    for link, problem in sorted(observations.wrong_addresses.items()):
        yield blocker(
            "cluster-data-differs",
            f"cluster {link.target} on {link.source}",
            problem,
            f"Brokers of {link.source} send the messages for {link.target} elsewhere, or nowhere.",
            f"correct the data with `pulsar-admin clusters update {link.target}` on {link.source}, if no other "
            f"namespace relies on it, and restart the brokers of {link.source} one after another: they keep the old "
            "addresses until then (observed, 4.2.4). Or correct the connection.",
        )


def _producers(observations: Observations) -> Iterator[Finding]:
    for cluster, by_topic in observations.producers.items():
        busy = {topic: count for topic, count in by_topic.items() if count}
        for name in sorted({str(TopicName.parse(topic).namespace) for topic in busy}):
            inside = [topic for topic in busy if TopicName.parse(topic).namespace == NamespaceName.parse(name)]
            yield blocker(
                "leaving-cluster-has-producers",
                f"{name} on {cluster}",
                f"{sum(busy[topic] for topic in inside)} producers, for example on {inside[0]}",
                f"What they publish after {cluster} has left stays on {cluster} alone.",
                f"let the applications publish to another cluster, then start this run again; their consumers on "
                f"{cluster} may stay until they have read what is there.",
            )


def notes(request: Request, topology: Topology) -> Iterable[Finding]:
    """What the settings of the run cannot do, as warnings."""
    if request.replicated_subscriptions and topology.receive_only:
        yield warning(
            "receive-only-subscriptions",
            ", ".join(topology.receive_only),
            "receives messages and sends nothing",
            "A position is copied only while every cluster of the list replicates back: of a topic that is sent there "
            "no member gets the positions of another one.",
            "name it in 'clusters' instead, or do without replicated subscriptions.",
        )
