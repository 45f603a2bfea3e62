"""Whether the proof that a cut-over relies on is fresh: not too old, and nothing changed since (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.cluster.text import duration
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.preflight.context import blocker
from pulsar_fleet.preflight.findings import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofBaseline(Document):
    """A proof of a namespace, and the state of both clusters at that time.

    :param at: when the bounds of the verification were frozen, seconds since 1970.
    :param verdict: of that verification, such as `equal`.
    :param blue: name of a setting of blue's namespace or of a topic in it → fingerprint of its value; `green` likewise.
    :param topics: topic → partition count on blue.
    :param ends: replicated partition → last entry on blue and on green, `ledger:entry` each.
    :param unsent: replicated partition → number of blue's entries up to that end without a copy on green.
    :param stored: redirected partition → bytes stored on green, by its brokers' lists; 0 where it is not listed.
    """

    SCHEMA_VERSION = 3

    namespace: str
    at: float
    verdict: str
    blue: Mapping[str, str]
    green: Mapping[str, str]
    topics: Mapping[str, int]
    ends: Mapping[str, tuple[str, str]]
    stored: Mapping[str, int] = field(default_factory=dict)
    unsent: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Growth:
    """What was added to one partition of green since the proof, and how much of it can be copies.

    :param blue: what was added to blue, read after green, plus what had no copy at the time of the proof.
    """

    topic: str
    blue: int
    green: int
    unit: str = "entries"


def uncopied(entries: Ledgers, confirmed: int | None, last: Position | None) -> int:
    """How many of these entries have no copy yet; 0 where nothing is replicated.

    :param confirmed: number of entries that the replicator's cursor has confirmed.
    :param last: source position of the newest copy, where it was read.
    """
    if confirmed is None:
        return 0
    return len(entries) - max(confirmed, entries.index_after(last) if last else 0)


def stale(
    baseline: ProofBaseline | None,
    now: ProofBaseline,
    growth: tuple[Growth, ...],
    *,
    max_age_minutes: float,
    clusters: Mapping[str, str],
) -> tuple[Finding, ...]:
    """Why the cut-over of a namespace must not rely on its proof; empty when it may.

    :param now: the state of both clusters now.
    :param growth: of every partition since the baseline.
    :param clusters: `blue` and `green` → the cluster's own name.
    """
    if baseline is None:
        return (
            blocker(
                "no-proof",
                now.namespace,
                "no proof in this run",
                "The cut-over would rely on a copy that was not compared.",
                "clear the task verify_copy and its downstream tasks.",
            ),
        )
    found = (*_age(baseline, now, max_age_minutes), *_changes(baseline, now), *_writers(growth))
    return tuple(finding.named(clusters) for finding in found)


def _age(baseline: ProofBaseline, now: ProofBaseline, allowed: float) -> Iterator[Finding]:
    minutes = (now.at - baseline.at) / 60
    if minutes > allowed:
        yield blocker(
            "proof-too-old",
            now.namespace,
            f"{baseline.verdict} {duration(minutes * 60)} ago, {duration(allowed * 60)} are allowed",
            "The clusters may have changed since.",
            "verify again while the change window is open: clear the task verify_copy and its downstream tasks.",
        )


def _changes(baseline: ProofBaseline, now: ProofBaseline) -> Iterator[Finding]:
    for side, before, after in (("blue", baseline.blue, now.blue), ("green", baseline.green, now.green)):
        changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
        if changed:
            yield blocker(
                "settings-changed",
                now.namespace,
                f"{', '.join(changed[:5])} on {{{side}}}",
                "Settings changed after the proof: {green} may not behave as {blue} does.",
                "take the change back, or make it on the other cluster too. Then verify again: clear the task "
                "verify_copy and its downstream tasks.",
            )
    moved = sorted(
        topic for topic in {*baseline.topics, *now.topics} if baseline.topics.get(topic) != now.topics.get(topic)
    )
    if moved:
        yield blocker(
            "topics-changed",
            now.namespace,
            ", ".join(moved[:5]),
            "Topics or partition counts changed after the plan: the cut-over would terminate topics that {green} "
            "lacks.",
            "end this run and undo it (pulsar-fleet abort), then start it again: its plan does not have these topics.",
        )


def _writers(growth: tuple[Growth, ...]) -> Iterator[Finding]:
    for partition in growth:
        if partition.green > partition.blue:
            yield blocker(
                "green-written-to",
                partition.topic,
                f"{partition.green:,} {partition.unit} were added to {{green}} since the proof; {partition.blue:,} "
                "can be copies",
                "A client writes to {green}: its messages would mix with those that arrive.",
                "find that client and stop it; what it has written stays on {green} and is delivered there. Then "
                "verify again: clear the task verify_copy and its downstream tasks.",
            )
