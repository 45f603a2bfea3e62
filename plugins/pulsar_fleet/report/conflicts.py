"""A conflict between clusters as one line: what it is about, which value wins and which lose (pure)."""

from __future__ import annotations

from pulsar_fleet.cluster.text import counted
from pulsar_fleet.planning.diff_entry import same
from pulsar_fleet.planning.render import short
from pulsar_fleet.policy_sync.listed_conflicts import ListedConflict
from pulsar_fleet.policy_sync.merge.merge_resource import Rule
from pulsar_fleet.policy_sync.reconcile.agreement import PARTITIONED_ON_SOME


def conflict_line(conflict: ListedConflict) -> str:
    """The conflict with the id by which another value can be chosen."""
    return f"CONFLICT {conflict.id}  {_subject(conflict)}: {outcome(conflict)}"


def _subject(conflict: ListedConflict) -> str:
    return f"{conflict.resource} {conflict.field}".rstrip()


def outcome(conflict: ListedConflict) -> str:
    """The winner with its value, then the others; for a resource that was deleted and edited, what a choice does."""
    if not conflict.field:
        return _deleted_and_edited(conflict)
    if conflict.rule == PARTITIONED_ON_SOME:
        counts = (f"{counted(count, 'partition')} on {cluster}" for cluster, count in sorted(conflict.values.items()))
        return f"{', '.join(counts)}; nothing is changed: delete the one without partitions when it is consumed"
    if conflict.rule == Rule.UNDECIDED:
        values = (f"{cluster} {short(value)}" for cluster, value in sorted(conflict.values.items()))
        return f"{', '.join(values)} ({conflict.rule}). Nothing is done until you choose a cluster"
    winner = conflict.values.get(conflict.winner)
    won = f"{conflict.winner} {short(winner)} wins" if conflict.winner in conflict.values else "the last agreement wins"
    others = (
        f"{cluster} {short(value)}{'' if same(value, winner) else ' loses'}"
        for cluster, value in sorted(conflict.values.items())
        if cluster != conflict.winner
    )
    return f"{won} ({conflict.rule}); {', '.join(others)}"


def _deleted_and_edited(conflict: ListedConflict) -> str:
    deleted = ", ".join(sorted(cluster for cluster, edits in conflict.values.items() if edits is None))
    edits = "; ".join(
        f"edited on {cluster}: {', '.join(f'{name} {short(value)}' for name, value in sorted(fields.items()))}"
        for cluster, fields in sorted(conflict.values.items())
        if fields
    )
    return (
        f"deleted on {deleted}; {edits}. Nothing is done until you choose: {conflict.winner} recreates it where it is "
        f"missing, {deleted} lets propagate_deletes plan its deletion"
    )
