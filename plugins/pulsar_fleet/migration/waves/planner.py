"""Which namespaces are cut over together, and in which order (pure).

Namespaces that share a client move together: the same client object, the same application name on a host, or a
replication link of one cluster. Smallest risk first; one group alone before all others, as a canary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from pulsar_fleet.cluster.document import Document, Sorted
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.migration.model import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One namespace of a wave.

    :param topics: number of topics; a partitioned topic counts once. `partitions` counts partitions and plain topics.
    :param backlog: unread entries on blue.
    :param warnings: findings that do not stop the run, with waived blockers.
    :param links: one text for each client, application and replication link.
    :param drain_seconds: expected drain; None if it is not known.
    :param stored_bytes: what blue stores, read or not; None if it is not known.
    """

    namespace: NamespaceName
    strategy: Strategy
    reason: str
    topics: int = 0
    partitions: int = 0
    producers: int = 0
    consumers: int = 0
    backlog: int = 0
    warnings: int = 0
    links: Annotated[frozenset[str], Sorted()] = frozenset()
    drain_seconds: float | None = None
    stored_bytes: int | None = None

    @property
    def risk(self) -> tuple[int, int, int, int]:
        """Sort key: warnings, whether it is replicated, clients, partitions."""
        copied = int(self.strategy.copies)
        return self.warnings, copied, self.producers + self.consumers, self.partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The maximal size of a wave; a single namespace is never split."""

    namespaces: int = 20
    topics: int = 1000

    def __post_init__(self) -> None:
        for name in ("namespaces", "topics"):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"A wave of at most {getattr(self, name)!r} {name} is not valid: set 1 or more.")

    def hold(self, members: Sequence[Member]) -> bool:
        """Whether these fit into one wave."""
        return len(members) <= self.namespaces and sum(member.topics for member in members) <= self.topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """Namespaces that are cut over together, after one approval.

    :param number: counted from 1.
    :param notes: sentences for the approval text.
    """

    number: int
    members: tuple[Member, ...]
    is_canary: bool = False
    notes: tuple[str, ...] = ()

    @property
    def namespaces(self) -> tuple[NamespaceName, ...]:
        """Names of the members, sorted."""
        return tuple(member.namespace for member in self.members)

    def total(self, count: str) -> int:
        """Sum of `topics`, `partitions`, `producers`, `consumers`, `backlog` or `warnings`."""
        return sum(int(getattr(member, count)) for member in self.members)


@dataclass(frozen=True, slots=True)
class WavePlan(Document):
    """All waves of a run: every namespace is in exactly one wave."""

    SCHEMA_VERSION = 1

    waves: tuple[Wave, ...]


def plan_waves(members: Iterable[Member], limits: Limits | None = None) -> WavePlan:
    """Assign namespaces to waves; the result does not depend on the order of `members`.

    Those that one flag or one document moves are one wave, whatever the limits.
    """
    most = limits or Limits()
    ordered = sorted(members, key=lambda member: member.namespace)
    if any(member.strategy.is_one_wave for member in ordered):
        return WavePlan((_wave(1, [(tuple(ordered), ())], is_canary=False),))
    units = [unit for group in _groups(ordered) for unit in _pieces(group, most)]
    units.sort(key=lambda unit: (_risk(unit[0]), unit[0][0].namespace))
    if not units:
        return WavePlan(())
    in_use = (unit for unit in units if any(member.producers + member.consumers for member in unit[0]))
    canary = next(in_use, units[0])
    rest = [unit for unit in units if unit is not canary]
    waves = [_wave(1, [canary], is_canary=bool(rest))]
    for units_of_wave in _packed(rest, most):
        waves.append(_wave(len(waves) + 1, units_of_wave, is_canary=False))
    return WavePlan(tuple(waves))


_Unit = tuple[tuple[Member, ...], tuple[str, ...]]


def _risk(members: Sequence[Member]) -> tuple[int, ...]:
    return tuple(sum(values) for values in zip(*(member.risk for member in members), strict=True))


def _groups(members: Sequence[Member]) -> Iterator[tuple[Member, ...]]:
    """Members that share a link, directly or through other members, in the order of their names."""
    parent = list(range(len(members)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    first: dict[str, int] = {}
    for index, member in enumerate(members):
        for link in member.links:
            parent[root(index)] = root(first.setdefault(link, index))
    groups: dict[int, list[Member]] = {}
    for index, member in enumerate(members):
        groups.setdefault(root(index), []).append(member)
    return (tuple(group) for group in groups.values())


def _pieces(group: tuple[Member, ...], limits: Limits) -> list[_Unit]:
    """The whole group, or parts of at most the size of a wave, with a note that says so."""
    pieces: list[list[Member]] = [[]]
    for member in group:
        if pieces[-1] and not limits.hold(group) and not limits.hold([*pieces[-1], member]):
            pieces.append([])
        pieces[-1].append(member)
    split = (
        f"{counted(len(group), 'namespace')} share clients, more than fit into one wave: they are split into "
        f"{counted(len(pieces), 'part')}, and "
        f"applications that use {group[0].namespace} and {group[-1].namespace} use both clusters until the last part "
        "is cut over."
    )
    common = (split,) if len(pieces) > 1 else ()
    return [(tuple(piece), (*common, *_too_large(piece, limits))) for piece in pieces]


def _too_large(piece: Sequence[Member], limits: Limits) -> Iterator[str]:
    if not limits.hold(piece):
        topics = counted(piece[0].topics, "topic")
        yield f"{piece[0].namespace} has {topics}, more than the limit of {limits.topics}: it is alone."


def _packed(units: Iterable[_Unit], limits: Limits) -> Iterator[list[_Unit]]:
    """Consecutive units, combined as long as the limits hold."""
    packed: list[_Unit] = []
    for unit in units:
        if packed and not limits.hold([member for members, _ in (*packed, unit) for member in members]):
            yield packed
            packed = []
        packed.append(unit)
    if packed:
        yield packed


def _wave(number: int, units: Sequence[_Unit], *, is_canary: bool) -> Wave:
    members = sorted((member for unit, _ in units for member in unit), key=lambda member: member.namespace)
    notes = dict.fromkeys(note for _, notes in units for note in notes)
    return Wave(number=number, members=tuple(members), is_canary=is_canary, notes=tuple(notes))
