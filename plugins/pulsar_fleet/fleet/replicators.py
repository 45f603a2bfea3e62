"""Read the newest examinations of replicators that `watch_replication` stored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.rows import utc
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.ledger.tables import runs
from pulsar_fleet.replication.doctor.model import Examination
from pulsar_fleet.replication.doctor.records import last_examination

PROCEDURE = "watch_replication"
_RUNS = 200
"""So many runs are looked at: more than a day of one that begins every ten minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedFleet:
    """The newest examination of some clusters.

    :param connections: ids of the connections of the clusters.
    :param selection: what of them is examined; empty: everything.
    :param read_at: when its figures were read.
    """

    run_id: str
    connections: tuple[str, ...]
    selection: tuple[str, ...]
    read_at: datetime
    examination: Examination


def read_watched(ledger: Ledger, artefacts: Artefacts) -> tuple[WatchedFleet, ...]:
    """The newest examination of each set of clusters and selection, in the order of their names."""
    query = sa.select(runs.c.run_id, runs.c.conf, runs.c.started_at).where(runs.c.procedure == PROCEDURE)
    with ledger.engine.connect() as connection:
        rows = connection.execute(query.order_by(runs.c.started_at.desc()).limit(_RUNS)).all()
    newest: dict[tuple[tuple[str, ...], tuple[str, ...]], WatchedFleet] = {}
    for row in rows:
        key = tuple(sorted(row.conf.get("clusters") or ())), tuple(sorted(row.conf.get("selection") or ()))
        # A run that has just begun, or failed before it had read anything, has no examination.
        if key not in newest and (stored := last_examination(Run(row.run_id, ledger, artefacts))):
            examination = stored[0]
            newest[key] = WatchedFleet(
                run_id=row.run_id,
                connections=key[0],
                selection=key[1],
                read_at=_read_at(examination, utc(row.started_at)),
                examination=examination,
            )
    return tuple(watched for _, watched in sorted(newest.items()))


def _read_at(examination: Examination, began: datetime) -> datetime:
    if examination.read_at:
        return datetime.fromtimestamp(examination.read_at, UTC)
    return began + timedelta(seconds=examination.seconds)
