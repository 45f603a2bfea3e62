"""Since when a cluster does not answer: kept by who noticed it first, so that runs and followers say the same."""

from __future__ import annotations

from datetime import UTC, datetime

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.ledger.event_store import Kept, Key, MarkStore
from pulsar_fleet.ledger.ledger import Ledger

_FLEET = "*"
_CONNECTION, _SILENT = "connection", "silent since"


class Silences:
    """The silences of the clusters of one event topic; it writes only where something changes."""

    def __init__(self, ledger: Ledger, topic: TopicName) -> None:
        self._store = MarkStore(ledger, str(topic), _FLEET)

    def begin(self, connection: str) -> tuple[str, datetime]:
        """The cluster of a connection does not answer: its name, or the connection's if it never did, and since when.

        Later calls say the same until the silence ends.
        """
        known = self._store.load()
        led = known.get((_CONNECTION, connection))
        cluster = str(led.document["cluster"]) if led else connection
        found = known.get((_SILENT, cluster))
        if found and found.document["since"]:
            return cluster, datetime.fromisoformat(found.document["since"])
        now = datetime.now(UTC)
        self._keep(known, (_SILENT, cluster), "since", now.isoformat())
        return cluster, now

    def end(self, connection: str, cluster: str) -> None:
        """The cluster answers, by this connection."""
        known = self._store.load()
        self._keep(known, (_CONNECTION, connection), "cluster", cluster)
        for name in {cluster, connection}:
            if (_SILENT, name) in known:
                self._keep(known, (_SILENT, name), "since", None)

    def _keep(self, known: dict[Key, Kept], key: Key, name: str, value: Json) -> None:
        before = known.get(key, Kept(0, {}))
        if before.document != {name: value}:
            # Who is slower than another process leaves it at what that one has seen.
            self._store.keep({key: Kept(before.version, {name: value})})


def behind_text(cluster: str, since: datetime, why: object) -> str:
    """The sentence that a follower says when a cluster stops to answer."""
    return f"{cluster} is behind since {since:%Y-%m-%d %H:%M:%S} UTC: {why}"
