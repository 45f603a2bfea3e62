"""What was read about clusters, namespaces, replicators and the topics to which they write (pure).

A fact that could not be read is None, and the diagnosis names it as unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.cluster.policies.effective import clusters_of_topic
from pulsar_fleet.cluster.statistics import Cursor
from pulsar_fleet.cluster.text import did_you_mean
from pulsar_fleet.preflight.bookies import Bookies


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerData:
    """The data of a peer as another cluster stores it, without secrets.

    :param tls: brokers connect to the peer with TLS.
    :param plugin: class of the authentication, empty where none is stored.
    :param trusts: it names authorities that brokers trust, or trusts every certificate.
    :param data: the whole document, with placeholders for secrets.
    :param leads_to: address → name of the cluster that answers there; None for an address that is not known.
    :param unreachable: address → why nothing answers there from here.
    :param refusal: why the peer does not accept the stored credentials; empty if it does, None if it was not asked.
    """

    name: str
    service_url: str = ""
    service_url_tls: str = ""
    broker_url: str = ""
    broker_url_tls: str = ""
    tls: bool = False
    plugin: str = ""
    trusts: bool = False
    data: Mapping[str, Json] = field(default_factory=dict)
    leads_to: Mapping[str, str | None] = field(default_factory=dict)
    unreachable: Mapping[str, str] = field(default_factory=dict)
    refusal: str | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses that brokers use."""
        pair = (self.service_url_tls, self.broker_url_tls) if self.tls else (self.service_url, self.broker_url)
        return tuple(address for address in pair if address)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """A cluster of the fleet.

    :param connection: how commands name it.
    :param outage: why it does not answer; empty if it does.
    :param configuration: the settings of a broker that concern replication; None if they may not be read.
    :param peers: the clusters that it knows; None if they may not be read.
    :param addresses: where it is known to answer.
    :param data: what other clusters store to reach it, with placeholders for secrets; None if that is unknown.
    :param version: of a broker that answered; empty if it is unknown.
    :param bookies: None if nobody asked for them.
    """

    name: str
    connection: str
    outage: str = ""
    configuration: Mapping[str, str] | None = None
    peers: Mapping[str, PeerData] | None = None
    addresses: frozenset[str] = frozenset()
    data: Mapping[str, Json] | None = None
    version: str = ""
    bookies: Bookies | None = None

    def setting(self, key: str) -> str:
        """A broker's setting, empty if it is not known."""
        return (self.configuration or {}).get(key, "")

    @property
    def has_bookie_groups(self) -> bool:
        """Whether its bookies are in groups, so that the affinity of a namespace can leave too few of them."""
        return bool(self.bookies and self.bookies.groups)

    def demands_credentials(self) -> bool:
        """Whether its brokers authenticate clients."""
        return self.setting("authenticationEnabled") == "true"

    def has_credentials(self) -> bool:
        """Whether its brokers have credentials of their own, which they use where the data of a peer has none."""
        plugin = self.setting("brokerClientAuthenticationPlugin")
        return bool(plugin) and not plugin.endswith("AuthenticationDisabled")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicies:
    """The comparable policies of a topic: its own, and those that are global."""

    local: Mapping[str, Json] = field(default_factory=dict)
    shared: Mapping[str, Json] = field(default_factory=dict)

    @property
    def clusters(self) -> tuple[str, ...] | None:
        """The topic's own list of clusters, None where that of the namespace is in effect."""
        names = clusters_of_topic(local=self.local, shared=self.shared)
        return None if names is None else tuple(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceFacts:
    """A namespace on one cluster.

    :param exists: None if it could not be read.
    :param clusters: its replication clusters, as they are in effect.
    :param added_by_run: those of them that a run of a migration has added, and takes away at its end.
    :param tenant: `adminRoles` and `allowedClusters` of its tenant; None without the tenant, or if it was not read.
    :param policies: its other policies, comparable.
    :param excepts_replicators: replicators may update schemas all the same, where both versions know of it.
    :param migrated: a migration has flagged it, so that its topics are terminated.
    :param topics: topic → partition count, 0 for a topic without partitions; None if the list could not be read.
    :param topic_policies: only of topics that have policies; None if they could not be read.
    """

    cluster: str
    name: NamespaceName
    exists: bool | None = None
    clusters: tuple[str, ...] = ()
    added_by_run: frozenset[str] = frozenset()
    allowed_clusters: tuple[str, ...] = ()
    tenant_exists: bool | None = None
    tenant: Mapping[str, Json] | None = None
    policies: Mapping[str, Json] = field(default_factory=dict)
    allows_schema_update: bool = True
    excepts_replicators: bool = True
    migrated: bool = False
    topics: Mapping[TopicName, int] | None = None
    topic_policies: Mapping[TopicName, TopicPolicies] | None = None

    @property
    def is_served(self) -> bool:
        """Whether its cluster serves its topics: brokers delete them where neither list has their own cluster."""
        return self.cluster in (*self.clusters, *self.allowed_clusters) or not self.clusters

    def policies_of(self, topic: TopicName) -> TopicPolicies:
        """The policies of a topic or of the topic of a partition."""
        return (self.topic_policies or {}).get(topic.parent, TopicPolicies())

    def clusters_of(self, topic: TopicName) -> tuple[str, ...]:
        """The list in effect for a topic."""
        own = self.policies_of(topic).clusters
        return self.clusters if own is None else own

    def targets_of(self, topic: TopicName) -> tuple[str, ...]:
        """The other clusters to which a topic is replicated."""
        return tuple(name for name in self.clusters_of(topic) if name != self.cluster)

    @property
    def tenant_clusters(self) -> tuple[str, ...] | None:
        """The clusters that the tenant allows, None if that is unknown."""
        return None if self.tenant is None else tuple(sorted(self.tenant.get("allowedClusters") or ()))

    @property
    def targets(self) -> tuple[str, ...]:
        """The other clusters to which the namespace, or one of its topics, is replicated, sorted."""
        lists = [self.clusters, *(policies.clusters or () for policies in (self.topic_policies or {}).values())]
        return tuple(sorted({name for names in lists for name in names} - {self.cluster}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A fact that could not be read, and why.

    :param about: the namespaces and tenants that it is about; empty: the whole cluster.
    """

    cluster: str
    resource: str
    reason: str
    about: frozenset[str] = frozenset()

    def text(self) -> str:
        """`green: topic policies of acme/orders: …`."""
        return f"{self.cluster}: {self.resource}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFacts:
    """Everything that was read.

    :param namespaces: (cluster, namespace) → facts.
    :param replicators: every replicator that lists or statistics name.
    :param targets: (target cluster, topic or partition) → the topic there, of replicators that do not work.
    :param subscriptions: (cluster, topic or partition) → its replicated subscriptions, each with the seconds since its
        mark-delete position moved; None if it did not since the topic was loaded.
    :param calls: cluster → number of HTTP requests.
    """

    clusters: Mapping[str, ClusterFacts]
    namespaces: Mapping[tuple[str, NamespaceName], NamespaceFacts] = field(default_factory=dict)
    replicators: tuple[ReplicatorFacts, ...] = ()
    targets: Mapping[tuple[str, TopicName], TargetTopic] = field(default_factory=dict)
    subscriptions: Mapping[tuple[str, TopicName], Mapping[str, float | None]] = field(default_factory=dict)
    unread: tuple[Unread, ...] = ()
    calls: Mapping[str, int] = field(default_factory=dict)

    def of(self, cluster: str) -> Iterator[NamespaceFacts]:
        """The namespaces of a cluster that exist."""
        for (name, _), facts in self.namespaces.items():
            if name == cluster and facts.exists:
                yield facts


def require_clusters(facts: FleetFacts, names: Collection[str]) -> None:
    """Refuse a name that no cluster has: a connection's id, for example, would be ignored without a message."""
    known = {*facts.clusters, *(peer for cluster in facts.clusters.values() for peer in cluster.peers or ())}
    for name in sorted({*names} - known):
        connections = {cluster.connection: cluster.name for cluster in facts.clusters.values()}
        hint = did_you_mean(name, known, f"the clusters are {', '.join(sorted(known))}.")
        if name in connections:
            hint = f"the cluster of this connection is {connections[name]!r}."
        raise InvalidRequest(f"No cluster has the name {name!r}; {hint}")


def renewed(facts: FleetFacts, newer: FleetFacts) -> FleetFacts:
    """The facts with what was read again about some namespaces, about their tenants and about every cluster."""
    names = {name for _, name in newer.namespaces}
    again = {str(name) for name in names} | {name.tenant for name in names}
    kept = tuple(row for row in facts.replicators if row.namespace not in names)
    targets = {key: topic for key, topic in facts.targets.items() if key[1].namespace not in names}
    subscriptions = {key: flags for key, flags in facts.subscriptions.items() if key[1].namespace not in names}
    return replace(
        facts,
        clusters={**facts.clusters, **{name: _located(facts, newer, name) for name in newer.clusters}},
        namespaces={**facts.namespaces, **newer.namespaces},
        replicators=kept + newer.replicators,
        targets={**targets, **newer.targets},
        subscriptions={**subscriptions, **newer.subscriptions},
        unread=(*(unread for unread in facts.unread if unread.about - again), *newer.unread),
        calls=newer.calls,
    )


def _located(facts: FleetFacts, newer: FleetFacts, name: str) -> ClusterFacts:
    """A cluster at the newer reading, which asked only for the peers of some namespaces where their addresses lead."""
    before, now = facts.clusters.get(name), newer.clusters[name]
    if before is None or before.peers is None or now.peers is None:
        return now
    asked = {target for namespace in newer.of(name) for target in namespace.targets}
    kept = {
        peer: data
        for peer, data in before.peers.items()
        if peer not in asked and peer in now.peers and data.data == now.peers[peer].data
    }
    return replace(now, peers={**now.peers, **kept})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The replicator in one answer of `stats`.

    :param backlog: entries that are not yet replicated.
    :param delay_seconds: age of the oldest of them that was read.
    :param sent_rate: messages per second, which the broker renews once a minute.
    :param sent_bytes_rate: the same in bytes.
    :param sent: messages and bytes since the topic was loaded, sent again or not; None where brokers do not say it.
    :param expired_rate: messages per second that expired before they were replicated.
    :param outbound: address of the connection to the target, empty without one.
    :param inbound: address of the connection by which the target replicates to us, empty without one.
    """

    backlog: int = 0
    connected: bool = False
    delay_seconds: float = 0.0
    sent_rate: float = 0.0
    sent_bytes_rate: float = 0.0
    sent: tuple[int, int] | None = None
    expired_rate: float = 0.0
    outbound: str = ""
    inbound: str = ""

    @classmethod
    def of(cls, document: JsonObject) -> Self:
        """Parse its part of a `stats` document; a missing field counts as 0 or empty."""
        return cls(
            backlog=int(document.get("replicationBacklog") or 0),
            connected=bool(document.get("connected")),
            delay_seconds=float(document.get("replicationDelayInSeconds") or 0),
            sent_rate=float(document.get("msgRateOut") or 0),
            sent_bytes_rate=float(document.get("msgThroughputOut") or 0),
            sent=_pair_of_counts(document),
            expired_rate=float(document.get("msgRateExpired") or 0),
            outbound=str(document.get("outboundConnection") or ""),
            inbound=str(document.get("inboundConnection") or ""),
        )


def _pair_of_counts(document: JsonObject) -> tuple[int, int] | None:
    messages, size = document.get("msgOutCount"), document.get("bytesOutCount")
    return None if messages is None else (int(messages), int(size or 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatorFacts:
    """A replicator of a topic or partition, read once, and twice if it is not idle and connected.

    :param expected: a list of clusters asks for it.
    :param first: None if the statistics do not have it.
    :param last: the later reading; the first one where one was enough.
    :param cursors: its cursor at two times, None where the topic has none; empty if it was not read.
    :param seconds: time between the two cursors.
    :param error: why the topic could not be read.
    """

    source: str
    target: str
    topic: TopicName
    expected: bool = True
    first: Reading | None = None
    last: Reading | None = None
    cursors: tuple[Cursor | None, ...] = ()
    seconds: float = 0.0
    error: str = ""

    @property
    def namespace(self) -> NamespaceName:
        """The namespace of its topic."""
        return self.topic.namespace

    @property
    def backlog(self) -> int:
        """Entries that are not yet replicated, at the last reading."""
        return self.last.backlog if self.last else 0

    @property
    def moved(self) -> int | None:
        """Entries that the target confirmed between the two readings of the cursor; None without two."""
        if len(self.cursors) < 2:
            return None
        before, now = self.cursors[0], self.cursors[-1]
        if before is None or now is None:
            return 0
        return now.confirmed_since(before)

    @property
    def per_second(self) -> float:
        """Entries that the target confirms per second, between the readings."""
        return (self.moved or 0) / self.seconds if self.seconds else 0.0

    @property
    def resent(self) -> bool | None:
        """Whether it sent messages between the readings of which none was confirmed; None if that is unknown."""
        sent = self._sent_between
        return None if sent is None or self.moved is None else sent[0] > 0 and self.moved == 0

    @property
    def speed(self) -> tuple[float, float]:
        """Messages and bytes per second: what it sent between the readings, or the broker's average: the higher."""
        sent, seconds = self._sent_between or (0, 0), self.seconds or 1.0
        last = self.last or Reading()
        return max(sent[0] / seconds, self.per_second, last.sent_rate), max(sent[1] / seconds, last.sent_bytes_rate)

    @property
    def _sent_between(self) -> tuple[int, int] | None:
        first, last = (reading.sent if reading else None for reading in (self.first, self.last))
        if first is None or last is None:
            return None
        # A topic that was loaded again in between counts from 0.
        return max(0, last[0] - first[0]), max(0, last[1] - first[1])

    @property
    def growth_per_second(self) -> float:
        """Entries per second by which the backlog grows; negative while it shrinks."""
        if self.first is None or self.last is None or not self.seconds:
            return 0.0
        return (self.last.backlog - self.first.backlog) / self.seconds

    @property
    def mark_delete(self) -> Position | None:
        """The last entry that the target has confirmed."""
        cursor = self.cursors[-1] if self.cursors else None
        return cursor.mark_delete if cursor else None

    def name(self) -> str:
        """`blue → green persistent://acme/orders/events-partition-3`."""
        return f"{self.source} → {self.target} {self.topic}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingSchema:
    """A version of the source's schemas that the target does not have.

    :param version: its number on the source.
    :param body: of the call that registers it.
    :param accepted: whether the target accepts it after the missing versions before it; None if that is unknown.
    """

    version: int
    body: Mapping[str, object] = field(default_factory=dict)
    accepted: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTopic:
    """The topic to which a replicator writes, read where the replicator does not work.

    :param exists: None if that is unknown.
    :param stored_bytes: its backlog in bytes, by which a backlog quota counts.
    :param received: messages and bytes per second of all its producers; None if that is unknown.
    :param missing: the schema versions of the source that the target does not have, in their order; empty if it has
        all of them, or if they were not read.
    :param strategy: the strategy by which the target judged the first of them.
    """

    exists: bool | None = None
    terminated: bool = False
    stored_bytes: int | None = None
    received: tuple[float, float] | None = None
    missing: tuple[MissingSchema, ...] = ()
    strategy: str = ""
