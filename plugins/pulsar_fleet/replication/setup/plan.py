"""The plan of a run that sets up replication: three stages on every cluster (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.planning.render import plan_markdown
from pulsar_fleet.preflight.context import call_text
from pulsar_fleet.preflight.findings import Finding, Planned, count_line
from pulsar_fleet.replication.topology import Link, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan(Document):
    """What changes on one cluster.

    :param contents: it adds cluster data, tenants, namespaces, topics and schemas, and sets policies.
    :param starts: lists that start links.
    :param ends: lists that end links, then the tenants and the data of clusters that leave.
    """

    contents: Plan
    starts: Plan
    ends: Plan

    @property
    def stages(self) -> tuple[Plan, Plan, Plan]:
        """In the order in which they are applied."""
        return self.contents, self.starts, self.ends


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationPlan(Document):
    """What changes on all clusters.

    :param namespaces: the namespaces that are replicated.
    :param topics: the topics, if the run is about topics and not whole namespaces.
    :param new_links: links that begin, by namespace.
    :param kept_local: member → topics that it replicates to no cluster, by lists of their own that stay as they are.
    :param unused: cluster → topics that another one has too; the history is copied because they hold nothing.
    """

    SCHEMA_VERSION = 1
    OTHER_VERSION = "make the plan again"

    topology: Topology
    namespaces: tuple[str, ...]
    topics: tuple[str, ...]
    new_links: Mapping[str, tuple[Link, ...]]
    clusters: Mapping[str, ClusterPlan]
    kept_local: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Every plan that has changes, in the order of the stages."""
        stages = zip(*(cluster.stages for cluster in self.clusters.values()), strict=True)
        return tuple(plan for stage in stages for plan in stage if not plan.empty)

    @property
    def changes(self) -> int:
        """The number of changes on all clusters."""
        return sum(len(plan.changes) for plan in self.plans)

    @property
    def calls(self) -> int:
        """Writing calls on all clusters."""
        return sum(plan.calls for plan in self.plans)

    @property
    def ends(self) -> bool:
        """Whether links end, so that the run waits for their backlog."""
        return any(not plans.ends.empty for plans in self.clusters.values())


def changed_lists(planned: ReplicationPlan, now: ReplicationPlan, *, history: bool) -> tuple[str, ...]:
    """What a plan that is made now does to lists, and the planned one does not, as `label on cluster`.

    What is in place by now is no change. With history, a link that has begun since is one: it would be copied twice.
    """
    changes = set[str]()
    for name, plans in now.clusters.items():
        known = {change.id for change in (*planned.clusters[name].starts.changes, *planned.clusters[name].ends.changes)}
        for change in (*plans.starts.changes, *plans.ends.changes):
            if change.id not in known:
                changes.add(f"{change.label} on {name}")
    for namespace, links in planned.new_links.items() if history else ():
        for link in {*links} - {*now.new_links.get(namespace, ())}:
            changes.add(f"{link} of {namespace}")
    return tuple(sorted(changes))


def described(plan: ReplicationPlan, findings: Sequence[Finding]) -> Planned[ReplicationPlan]:
    """The plan with its findings, its numbers in a sentence, and a text with every call."""
    topology = plan.topology
    parts = [
        f"members {', '.join(topology.members)}",
        f"receive-only {', '.join(topology.receive_only)}" if topology.receive_only else "",
        f"leaving {', '.join(topology.leaving)}" if topology.leaving else "",
    ]
    headline = (
        f"{counted(len(plan.namespaces), 'namespace')}, {'; '.join(filter(None, parts))}: "
        f"{counted(plan.changes, 'change')}, {counted(plan.calls, 'call')}; {count_line(findings)}."
    )
    calls = "\n".join(["**The calls**, in their order:", "", "```", *call_lines(plan), "```"])
    text = "\n\n".join((headline, *map(plan_markdown, plan.plans), calls))
    return Planned(plan=plan, findings=tuple(findings), headline=headline, text=text)


def call_lines(plan: ReplicationPlan) -> list[str]:
    """Every writing call in its order; secrets are shown as fingerprints."""
    changes = ((part.target, change) for part in plan.plans for change in part.changes)
    return [call_text(target, call) for target, change in changes for call in change.calls]
