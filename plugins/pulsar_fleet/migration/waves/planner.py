"""Which namespaces are switched together, and in which order (pure).

Namespaces that one client really uses move together: a producer or consumer object, an application by its name on a
host, or a replication link of one cluster. Smallest risk first, and one group alone before all others, as a canary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.migration.model import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One namespace as the waves see it.

    :param topics: topics by their own names; `partitions` is what holds their messages.
    :param backlog: unread entries on blue.
    :param warnings: findings that do not stop the run, waived blockers among them.
    :param links: who uses it, one text for each client, application and replication link.
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
    links: frozenset[str] = frozenset()

    @property
    def risk(self) -> tuple[int, int, int, int]:
        """What is known to be risky, whether it is copied, how many clients it has, how large it is."""
        copied = int(self.strategy is Strategy.REPLICATE)
        return self.warnings, copied, self.producers + self.consumers, self.partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How large a wave may be; a single namespace is never cut."""

    namespaces: int = 20
    topics: int = 1000

    def __post_init__(self) -> None:
        for name in ("namespaces", "topics"):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"A wave of at most {getattr(self, name)!r} {name} cannot be: give 1 or more.")

    def hold(self, members: Sequence[Member]) -> bool:
        """Whether these fit into one wave."""
        return len(members) <= self.namespaces and sum(one.topics for one in members) <= self.topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """Namespaces that are switched together, after one approval.

    :param number: counted from 1.
    :param notes: what is special about it, in sentences.
    """

    number: int
    members: tuple[Member, ...]
    is_canary: bool = False
    notes: tuple[str, ...] = ()

    @property
    def namespaces(self) -> tuple[NamespaceName, ...]:
        """Their names, in order."""
        return tuple(one.namespace for one in self.members)

    def total(self, what: str) -> int:
        """Sum of `topics`, `partitions`, `producers`, `consumers`, `backlog` or `warnings`."""
        return sum(int(getattr(one, what)) for one in self.members)


@dataclass(frozen=True, slots=True)
class WavePlan:
    """All waves of a run: every namespace is in exactly one."""

    waves: tuple[Wave, ...]

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {"schema_version": 1, "waves": [_wave_to_json(wave) for wave in self.waves]}

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        return cls(tuple(_wave_from_json(wave) for wave in found["waves"]))


def plan_waves(members: Iterable[Member], limits: Limits | None = None) -> WavePlan:
    """Put namespaces into waves; the same for any order of `members`."""
    most = limits or Limits()
    given = sorted(members, key=lambda one: one.namespace)
    units = [unit for group in _groups(given) for unit in _pieces(group, most)]
    units.sort(key=lambda unit: (_risk(unit[0]), unit[0][0].namespace))
    if not units:
        return WavePlan(())
    canary = next((unit for unit in units if any(one.producers + one.consumers for one in unit[0])), units[0])
    rest = [unit for unit in units if unit is not canary]
    waves = [_wave(1, [canary], is_canary=bool(rest))]
    for units_of_wave in _packed(rest, most):
        waves.append(_wave(len(waves) + 1, units_of_wave, is_canary=False))
    return WavePlan(tuple(waves))


_Unit = tuple[tuple[Member, ...], tuple[str, ...]]


def _risk(members: Sequence[Member]) -> tuple[int, ...]:
    return tuple(sum(values) for values in zip(*(one.risk for one in members), strict=True))


def _groups(members: Sequence[Member]) -> Iterator[tuple[Member, ...]]:
    """Members that share a link, directly or over others, in the order of their names."""
    above = list(range(len(members)))

    def root(index: int) -> int:
        while above[index] != index:
            above[index] = above[above[index]]
            index = above[index]
        return index

    first: dict[str, int] = {}
    for index, member in enumerate(members):
        for link in member.links:
            above[root(index)] = root(first.setdefault(link, index))
    found: dict[int, list[Member]] = {}
    for index, member in enumerate(members):
        found.setdefault(root(index), []).append(member)
    return (tuple(group) for group in found.values())


def _pieces(group: tuple[Member, ...], limits: Limits) -> list[_Unit]:
    """The group as it is, or cut where a wave is full, and then it says so."""
    pieces: list[list[Member]] = [[]]
    for member in group:
        if pieces[-1] and not limits.hold(group) and not limits.hold([*pieces[-1], member]):
            pieces.append([])
        pieces[-1].append(member)
    cut = (
        f"{len(group)} namespaces share clients, more than a wave may hold, and were cut into {len(pieces)}: "
        f"applications that use {group[0].namespace} and {group[-1].namespace} are between both clusters for a while."
    )
    common = (cut,) if len(pieces) > 1 else ()
    return [(tuple(piece), (*common, *_too_large(piece, limits))) for piece in pieces]


def _too_large(piece: Sequence[Member], limits: Limits) -> Iterator[str]:
    if not limits.hold(piece):
        yield f"{piece[0].namespace} has {piece[0].topics} topics, more than a wave of {limits.topics}: it is alone."


def _packed(units: Iterable[_Unit], limits: Limits) -> Iterator[list[_Unit]]:
    """Units put together in their order as long as the limits hold."""
    packed: list[_Unit] = []
    for unit in units:
        if packed and not limits.hold([member for members, _ in (*packed, unit) for member in members]):
            yield packed
            packed = []
        packed.append(unit)
    if packed:
        yield packed


def _wave(number: int, units: Sequence[_Unit], *, is_canary: bool) -> Wave:
    members = sorted((member for unit, _ in units for member in unit), key=lambda one: one.namespace)
    notes = dict.fromkeys(note for _, notes in units for note in notes)
    return Wave(number=number, members=tuple(members), is_canary=is_canary, notes=tuple(notes))


_COUNTED = ("topics", "partitions", "producers", "consumers", "backlog", "warnings")


def _wave_to_json(wave: Wave) -> JsonObject:
    return {
        "number": wave.number,
        "is_canary": wave.is_canary,
        "notes": list(wave.notes),
        "members": [
            {
                "namespace": str(one.namespace),
                "strategy": one.strategy.value,
                "reason": one.reason,
                "links": sorted(one.links),
                **{key: getattr(one, key) for key in _COUNTED},
            }
            for one in wave.members
        ],
    }


def _wave_from_json(found: JsonObject) -> Wave:
    members = tuple(_member_from_json(one) for one in found["members"])
    return Wave(number=found["number"], members=members, is_canary=found["is_canary"], notes=tuple(found["notes"]))


def _member_from_json(found: Mapping[str, object]) -> Member:
    document: JsonObject = dict(found)
    return Member(
        namespace=NamespaceName.parse(document.pop("namespace")),
        strategy=Strategy(document.pop("strategy")),
        links=frozenset(document.pop("links")),
        **document,
    )
