"""What followers share: which clusters belong to the fleet, which of them join, and which do not answer (client)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Self

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.ledger.event_store import EventStore, Key, StoredDocument
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.fleet import Fleet
from pulsar_fleet.policy_sync.events.request import Request

_FLEET = "*"
_MEMBER, _SNAPSHOT = "member", "snapshot"
_MINUTE_MS = 60_000
_CLAIM_MS = 2 * _MINUTE_MS
"""After this time a snapshot counts as given up: its process was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(Document):
    """What is recorded about a cluster of the fleet.

    :param equal: whether it applied the snapshot of the fleet: until then it publishes nothing.
    :param received: whether it received the snapshot.
    :param sent: whether a snapshot was published for it.
    :param sender: the cluster that publishes the snapshot, `claimed_at` in ms since 1970; empty if none does.
    :param left_out: tenants and namespaces, or parts of these, that were left out of it: `sender` publishes them later.
    :param lacks: what was left out of the snapshot that arrived, and has not arrived since: one text each.
    """

    equal: bool = False
    received: bool = False
    sent: bool = False
    sender: str = ""
    claimed_at: int = 0
    left_out: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


_FOUNDER = Member(equal=True, received=True, sent=True)


class Members:
    """The members of one event topic's fleet, as this ledger has them. Safe for several processes."""

    def __init__(self, ledger: Ledger, topic: TopicName) -> None:
        self._store = EventStore(ledger, str(topic), _FLEET)

    def begin(self, fleet: Collection[str], joining: Collection[str]) -> None:
        """Record the clusters that join, before anything is created on them; the first call records the founders."""
        rows = self._rows()
        if not rows:
            for name in set(fleet) - set(joining):
                self._save(name, None, _FOUNDER)
        for name in joining:
            self._save(name, rows.get(name), Member())

    def joins(self, cluster: str) -> bool:
        """Whether a cluster has not applied yet what the others have."""
        row = self._rows().get(cluster)
        return row is not None and not row.member.equal

    def claim_snapshot(self, own: str, fleet: Collection[str], now: int) -> tuple[str, ...]:
        """The clusters for which this process has to publish a snapshot: no other process has, or does.

        :param own: the cluster whose resources would be published.
        :param now: in ms since 1970.
        """
        rows, claimed = self._rows(), []
        for name in sorted(set(fleet) - {own}):
            row = rows.get(name)
            member = row.member if row else Member(equal=True)
            if member.sent or (member.sender and now - member.claimed_at < _CLAIM_MS):
                continue
            if self._save(name, row, replace(member, sender=own, claimed_at=now)):
                claimed.append(name)
        return tuple(claimed)

    def end_snapshot(self, names: Collection[str], *, sent: bool, left_out: Collection[str] = ()) -> None:
        """Record that the snapshot was published, or that it was not so that another process may.

        :param left_out: what it does not have; its sender publishes that later.
        """
        owed = tuple(sorted(left_out)) if sent else ()
        for name, row in self._rows().items():
            if name in names:
                sender = row.member.sender if owed else ""
                self._save(name, row, replace(row.member, sent=sent, sender=sender, left_out=owed))

    def owed(self, own: str) -> dict[str, frozenset[str]]:
        """Cluster → what was left out of the snapshot that was published for it from a cluster."""
        rows = self._rows().items()
        return {
            name: frozenset(row.member.left_out)
            for name, row in rows
            if row.member.sent and row.member.left_out and row.member.sender == own
        }

    def receive_snapshot(self, own: str, lacks: tuple[str, ...]) -> None:
        """Record that the snapshot for a cluster arrived there, or later parts of it, and what it still lacks."""
        row = self._rows().get(own)
        if row is not None and (not row.member.received or row.member.lacks != lacks):
            self._save(own, row, replace(row.member, received=True, lacks=lacks))

    def lacks(self, own: str) -> tuple[str, ...]:
        """What a cluster has not received of what the fleet had before it joined, and why."""
        row = self._rows().get(own)
        return row.member.lacks if row else ()

    def become_equal(self, own: str) -> bool:
        """Record that a cluster that joins applied the snapshot; False if it has not arrived, or did not join.

        What the snapshot lacks may come much later: until then the cluster has these parts as it brought them.
        """
        row = self._rows().get(own)
        if row is None or row.member.equal or not row.member.received:
            return False
        return self._save(own, row, replace(row.member, equal=True))

    def periodic_snapshot_is_due(self, own: str, minutes: float, now: int) -> bool:
        """Whether the last snapshot of a cluster is that long ago; the first call begins the interval.

        :param minutes: between two snapshots; 0 for none, so that nothing is recorded.
        :param now: in ms since 1970.
        """
        if not minutes:
            return False
        key, stored = (_SNAPSHOT, own), self._store.load(kind=_SNAPSHOT)
        last = stored.get(key)
        if last is not None and now - int(last.document["at"]) < minutes * _MINUTE_MS:
            return False
        version = last.version if last else 0
        return self._store.save({key: StoredDocument(version, {"at": now})}) and last is not None

    def _rows(self) -> dict[str, _Row]:
        return {key[1]: _Row.of(stored) for key, stored in self._store.load(kind=_MEMBER).items()}

    def _save(self, name: str, row: _Row | None, member: Member) -> bool:
        """False if another process saved the member first."""
        key: Key = (_MEMBER, name)
        return self._store.save({key: StoredDocument(row.version if row else 0, member.to_json())})


@dataclass(frozen=True, slots=True)
class _Row:
    member: Member
    version: int

    @classmethod
    def of(cls, stored: StoredDocument) -> Self:
        return cls(Member.from_json(stored.document), stored.version)


_CONNECTION, _OUTAGE = "connection", "outage"


class Outages:
    """The outages of the clusters of one event topic; a call writes only if something changed."""

    def __init__(self, ledger: Ledger, topic: TopicName) -> None:
        self._store = EventStore(ledger, str(topic), _FLEET)

    def begin(self, connection: str) -> tuple[str, datetime]:
        """Record that the cluster of a connection does not answer; later calls return the same until the outage ends.

        :returns: the name of the cluster, or of the connection if its cluster never answered, and since when.
        """
        stored = self._store.load()
        last = stored.get((_CONNECTION, connection))
        cluster = str(last.document["cluster"]) if last else connection
        outage = stored.get((_OUTAGE, cluster))
        if outage and outage.document["since"]:
            return cluster, datetime.fromisoformat(outage.document["since"])
        now = datetime.now(UTC)
        self._save(stored, (_OUTAGE, cluster), "since", now.isoformat())
        return cluster, now

    def end(self, connection: str, cluster: str) -> None:
        """Record that the cluster answers by this connection."""
        stored = self._store.load()
        self._save(stored, (_CONNECTION, connection), "cluster", cluster)
        for name in {cluster, connection}:
            if (_OUTAGE, name) in stored:
                self._save(stored, (_OUTAGE, name), "since", None)

    def _save(self, stored: dict[Key, StoredDocument], key: Key, name: str, value: Json) -> None:
        before = stored.get(key, StoredDocument(0, {}))
        if before.document != {name: value}:
            # If another process was faster, its record stays.
            self._store.save({key: StoredDocument(before.version, {name: value})})


def outages_of(reached: Fleet, run: Run, request: Request) -> Outages:
    """The outages of the fleet, after those of the clusters that answer were ended."""
    outages = Outages(run.ledger, request.event_topic)
    for name, admin in reached.clusters.items():
        if admin.connection.name not in reached.behind:
            outages.end(admin.connection.name, name)
    return outages


def behind_text(cluster: str, since: datetime, why: object) -> str:
    """The line that a follower prints when a cluster stops answering."""
    return f"{cluster} is behind since {since:%Y-%m-%d %H:%M:%S} UTC: {why}"
