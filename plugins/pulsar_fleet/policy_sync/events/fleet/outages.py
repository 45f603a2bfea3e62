"""Since when a cluster does not answer: recorded by the first process that notices, read by runs and followers."""

from __future__ import annotations

from datetime import UTC, datetime

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.ledger.event_store import EventStore, Key, StoredDocument
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.fleet import Fleet
from pulsar_fleet.policy_sync.events.request import Request

_FLEET = "*"
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
