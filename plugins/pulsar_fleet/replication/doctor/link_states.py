"""The replicators of each pair of clusters as one row (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pulsar_fleet.replication.doctor.causes.pair import Assessed
from pulsar_fleet.replication.doctor.model import LinkState, State
from pulsar_fleet.replication.doctor.replicators import ReplicatorFacts


def forecast_seconds(row: ReplicatorFacts) -> float | None:
    """Until the backlog is sent if both rates stay; None if it does not shrink."""
    if row.growth_per_second >= 0 or row.last is None:
        return None
    return row.last.backlog / -row.growth_per_second


def link_states(assessed: Iterable[Assessed]) -> tuple[LinkState, ...]:
    """A row for each source and target."""
    links: dict[tuple[str, str], list[Assessed]] = {}
    for row in assessed:
        links.setdefault((row.facts.source, row.facts.target), []).append(row)
    return tuple(_link(source, target, rows) for (source, target), rows in sorted(links.items()))


def _link(source: str, target: str, rows: Sequence[Assessed]) -> LinkState:
    seconds = [_catch_up(row) for row in rows]
    known = [number for number in seconds if number is not None]
    return LinkState(
        source=source,
        target=target,
        counts=Counter(row.state.value for row in rows),
        backlog=sum(row.facts.backlog for row in rows),
        delay_seconds=max(row.facts.last.delay_seconds if row.facts.last else 0.0 for row in rows),
        per_second=round(sum(row.facts.per_second for row in rows), 2),
        catch_up_seconds=max(known) if len(known) == len(seconds) else None,
    )


def _catch_up(row: Assessed) -> float | None:
    """Until what waits now is sent, while a healthy replicator sends as fast as producers publish."""
    if row.state is State.HEALTHY:
        return row.facts.backlog / row.facts.per_second if row.facts.per_second else 0.0
    return forecast_seconds(row.facts)
