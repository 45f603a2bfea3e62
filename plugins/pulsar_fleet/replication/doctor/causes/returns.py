"""Whether what moved applications write is replicated back, so that they can return (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pulsar_fleet.clients.store import Followed
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.text import listed
from pulsar_fleet.replication.doctor.causes.pair import Assessed, Explained, diagnosis, link_state
from pulsar_fleet.replication.doctor.facts import FleetFacts
from pulsar_fleet.replication.doctor.model import ReturnState, State


def find_return_causes(facts: FleetFacts, moved: Sequence[Followed], selection: Selection) -> Iterator[Explained]:
    """Namespaces and topics of moved groups whose list does not name the cluster to which applications can return."""
    for group in _examined(facts, moved, selection):
        by = f"The clients of {group.published.group} are led to {group.published.cluster} (run {group.published.run})"
        for name, evidence in _not_replicated(facts, group, selection):
            ends = (group.published.cluster, group.origin)
            yield Explained(diagnosis("return-stopped", name, *ends, f"{by}; {evidence}."))


def return_states(
    facts: FleetFacts, assessed: Sequence[Assessed], moved: Sequence[Followed], selection: Selection
) -> Iterator[ReturnState]:
    """A row for each moved group of which both clusters answer, and a namespace is selected."""
    for group in _examined(facts, moved, selection):
        names, ends = _selected(group, selection), (group.published.cluster, group.origin)
        rows = [
            row for row in assessed if (row.facts.source, row.facts.target) == ends and row.facts.namespace in names
        ]
        read = link_state(*ends, rows)
        missing = sum(1 for _ in _not_replicated(facts, group, selection))
        unread = sum(_is_unread(facts, group, name) for name in names)
        counts = dict(read.counts)
        for state, number in ((State.MISSING, missing), (State.UNKNOWN, unread)):
            if number:
                counts[state.value] = counts.get(state.value, 0) + number
        yield ReturnState(
            group=group.published.group,
            run=group.published.run,
            namespaces=tuple(sorted(map(str, names))),
            replicators=replace(read, counts=counts),
        )


def _examined(facts: FleetFacts, moved: Sequence[Followed], selection: Selection) -> Iterator[Followed]:
    for group in moved:
        ends = (facts.clusters.get(group.published.cluster), facts.clusters.get(group.origin))
        if all(end is not None and not end.outage for end in ends) and _selected(group, selection):
            yield group


def _selected(group: Followed, selection: Selection) -> frozenset[NamespaceName]:
    names = map(NamespaceName.parse, group.published.namespaces)
    return frozenset(name for name in names if selection.has(name))


def _is_unread(facts: FleetFacts, group: Followed, name: NamespaceName) -> bool:
    here = facts.namespaces.get((group.published.cluster, name))
    if here is None:
        return any(unread.about & {str(name), name.tenant} for unread in facts.unread)
    return here.exists is None or (here.exists and here.topics is None)


def _not_replicated(facts: FleetFacts, group: Followed, selection: Selection) -> Iterator[tuple[str, str]]:
    """Namespace or topic that no list replicates back, and its list."""
    own, origin = group.published.cluster, group.origin
    for name in sorted(_selected(group, selection)):
        here = facts.namespaces.get((own, name))
        if here is None or not here.exists:
            if not _is_unread(facts, group, name):
                yield str(name), f"{own} has no such namespace"
        elif origin not in here.clusters:
            yield str(name), f"the list on {own} is {listed(here.clusters) or 'empty'}"
        else:
            for topic in sorted(here.topics or {}):
                if origin not in here.targets_of(topic):
                    yield str(topic), f"the list of this topic on {own} is {listed(here.clusters_of(topic))}"
