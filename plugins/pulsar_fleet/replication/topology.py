"""Which cluster replicates to which (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from pulsar_fleet.cluster.document import Document


@dataclass(frozen=True, slots=True, order=True)
class Link(Document):
    """Replication in one direction."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source} → {self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology(Document):
    """The desired replication, by the clusters' own names; a name is in one of the three groups.

    One member and one receive-only cluster replicate in one direction.

    :param members: each replicates to all other members and to the receive-only clusters.
    :param receive_only: they receive from every member and send nothing.
    :param leaving: no replication to or from them remains.
    """

    members: tuple[str, ...]
    receive_only: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()

    @property
    def clusters(self) -> tuple[str, ...]:
        """All clusters, members first."""
        return (*self.members, *self.receive_only, *self.leaving)

    @property
    def remaining(self) -> tuple[str, ...]:
        """The clusters that are not leaving."""
        return (*self.members, *self.receive_only)

    def list_of(self, cluster: str) -> list[str]:
        """The cluster list that `cluster` stores; it always has its own name."""
        return sorted({cluster, *self.remaining}) if cluster in self.members else [cluster]

    def links(self) -> Iterator[Link]:
        """Every direction in which messages are replicated."""
        for source in self.members:
            yield from (Link(source, target) for target in self.remaining if target != source)

    def gone_from(self, cluster: str) -> set[str]:
        """The clusters that leave, as `cluster` sees them: a cluster that leaves itself sends to none that remains."""
        return {*(self.remaining if cluster in self.leaving else self.leaving)} - {cluster}

    def growing_list(self, cluster: str, current: Collection[str]) -> list[str]:
        """The list that starts all links of a cluster and ends none."""
        return sorted({*current, *self.list_of(cluster)})

    def ends_links(self, cluster: str, current: Collection[str]) -> bool:
        """Whether a cluster has links that end."""
        return bool({*current} - {*self.list_of(cluster)})
