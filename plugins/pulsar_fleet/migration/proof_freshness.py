"""Whether what a switch relies on still holds: proven not too long ago, and nothing changed since (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Self

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.preflight.context import blocker
from pulsar_fleet.preflight.findings import Finding

_PROVE_AGAIN = "find out who did it, then prove again: clear the task verify_copy and what follows it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What was proven about a namespace, and how both sides were when it was.

    :param at: when the bounds of the proof were frozen, seconds since 1970.
    :param verdict: of that proof, such as `equal`.
    :param blue: name of a setting of blue's namespace or of a topic in it → fingerprint of its value; `green` likewise.
    :param topics: topic → partition count on blue.
    :param ends: partition that is copied → where blue and green ended, `ledger:entry` each.
    :param unsent: how many of blue's entries up to that end green did not have yet.
    :param stored: partition that is only redirected → bytes that green stored, by its brokers' lists; 0 where unlisted.
    """

    namespace: str
    at: float
    verdict: str
    blue: Mapping[str, str]
    green: Mapping[str, str]
    topics: Mapping[str, int]
    ends: Mapping[str, tuple[str, str]]
    stored: Mapping[str, int] = field(default_factory=dict)
    unsent: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {"schema_version": 3, **asdict(self)}

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        ends = {topic: (str(blue), str(green)) for topic, (blue, green) in found["ends"].items()}
        return cls(**{key: value for key, value in found.items() if key != "schema_version"} | {"ends": ends})


@dataclass(frozen=True, slots=True)
class Growth:
    """What came to one partition of green since the proof, and what copies of blue can account for.

    :param blue: what came to blue, looked at after green, and what was not copied yet when the proof was made.
    """

    topic: str
    blue: int
    green: int
    unit: str = "entries"


def uncopied(held: Ledgers, confirmed: int | None, last: Position | None) -> int:
    """How many of these entries have no copy yet; none where nothing is copied at all.

    :param confirmed: how many of the first ones the copying side has confirmed.
    :param last: the position of the entry whose copy is the newest, where that was asked for.
    """
    if confirmed is None:
        return 0
    return len(held) - max(confirmed, held.behind(last) if last else 0)


def stale(
    basis: Basis | None, now: Basis, growth: tuple[Growth, ...], *, max_age_minutes: float
) -> tuple[Finding, ...]:
    """Why the switch of a namespace must not rely on what was proven; nothing when it may.

    :param now: how both sides are; its `at` is the present time.
    :param growth: since the basis, of every partition.
    """
    if basis is None:
        return (
            blocker(
                "never-proven",
                now.namespace,
                "no proof in this run",
                "The switch would rely on a copy that nobody compared.",
                "clear the task verify_copy and what follows it.",
            ),
        )
    return (*_age(basis, now, max_age_minutes), *_changes(basis, now), *_writers(growth))


def _age(basis: Basis, now: Basis, allowed: float) -> Iterator[Finding]:
    minutes = (now.at - basis.at) / 60
    if minutes > allowed:
        yield blocker(
            "proof-too-old",
            now.namespace,
            f"{basis.verdict} {minutes:,.0f} minutes ago, {allowed:,.0f} are allowed",
            "What was proven may not hold any more.",
            "prove again, now that the change window is open: clear the task verify_copy and what follows it.",
        )


def _changes(basis: Basis, now: Basis) -> Iterator[Finding]:
    for side, before, after in (("blue", basis.blue, now.blue), ("green", basis.green, now.green)):
        changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
        if changed:
            yield blocker(
                "settings-changed",
                now.namespace,
                f"{', '.join(changed[:5])} on {side}",
                "Somebody changed settings after the proof: green may not behave as blue does.",
                _PROVE_AGAIN,
            )
    moved = sorted(topic for topic in {*basis.topics, *now.topics} if basis.topics.get(topic) != now.topics.get(topic))
    if moved:
        yield blocker(
            "topics-changed",
            now.namespace,
            ", ".join(moved[:5]),
            "Topics came, went or were cut anew after the plan: the switch would close what green does not have.",
            _PROVE_AGAIN,
        )


def _writers(growth: tuple[Growth, ...]) -> Iterator[Finding]:
    for one in growth:
        if one.green > one.blue:
            yield blocker(
                "green-written-to",
                one.topic,
                f"{one.green:,} {one.unit} came to green since the proof, of which {one.blue:,} can be copies",
                "Somebody else than the replicator writes to green: its messages would mix with those that arrive.",
                _PROVE_AGAIN,
            )
