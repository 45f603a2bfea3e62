"""What was read from both clusters before a migration, as values; what could not be read is named in it (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from pulsar_fleet.cluster.admin.read_problems import Note, Problem
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.migration.model import Strategy
from pulsar_fleet.migration.stats.facts import NamespaceFacts
from pulsar_fleet.planning.translation import translate_snapshot
from pulsar_fleet.preflight.context import Pair, Probes
from pulsar_fleet.preflight.schema_probe import SchemaAnswer
from pulsar_fleet.snapshot.model import Snapshot

_PORTS = {
    "webServicePort": "http",
    "webServicePortTls": "https",
    "brokerServicePort": "pulsar",
    "brokerServicePortTls": "pulsar+ssl",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """A cluster as the gates need it.

    :param snapshot: brokers, policies, topics, schemas, subscriptions of the namespaces that move.
    :param redirect: the `ClusterUrl` that is stored for its clients, empty if never set, None if it could not be read.
    :param notes: what could not be read, beyond what the snapshot names.
    """

    snapshot: Snapshot
    redirect: JsonObject | None
    notes: tuple[Note, ...] = ()

    @property
    def name(self) -> str:
        """The cluster's own name."""
        return self.snapshot.cluster

    @property
    def brokers(self) -> Mapping[str, JsonObject]:
        """`host:port` → effective configuration, each broker asked by itself."""
        return {one.address: one.configuration for one in self.snapshot.brokers}

    @property
    def unread(self) -> tuple[Note, ...]:
        """What is there and could not be read, and what our role may not see."""
        wrong = (Problem.UNREADABLE, Problem.HIDDEN)
        return tuple(note for note in (*self.snapshot.notes, *self.notes) if note.problem in wrong)

    def offers(self) -> frozenset[str]:
        """Kinds of service that any of its brokers has: `pulsar`, `pulsar+ssl`, `http`, `https`."""
        shown = ((kind, settings.get(key)) for settings in self.brokers.values() for key, kind in _PORTS.items())
        # Shown as `Optional[6650]`, `Optional.empty`, `6650` or nothing.
        return frozenset(kind for kind, value in shown if re.search(r"\d", str(value or "")))


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressProbe:
    """One address of the redirect, tried from here.

    :param placeholder: nobody is meant to listen there, because green has no service of that kind.
    :param error: why it took no connection; empty if it did.
    :param answered: the broker that it led to, as that one calls itself; empty if that is not known.
    :param detail: why that is not known.
    """

    key: str
    url: str
    placeholder: bool = False
    error: str = ""
    answered: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirecting:
    """Where blue's clients would be sent, and what answers there.

    :param advertised: the addresses that green's brokers give for themselves, by green's admin API.
    :param credentials: what green says to the credentials with which we come to blue: empty if it takes them.
    :param trust: what blue's trust store says to green's certificate: empty if it takes it.
    """

    document: JsonObject
    probes: tuple[AddressProbe, ...]
    advertised: frozenset[str] = frozenset()
    credentials: str = ""
    trust: str = ""

    def to_json(self) -> JsonObject:
        """As a JSON object; `Redirect.from_json` reads the part that the switch stores."""
        return {
            "schema_version": 1,
            "document": dict(self.document),
            "placeholders": [probe.key for probe in self.probes if probe.placeholder],
            "probes": [asdict(probe) for probe in self.probes],
            "advertised": sorted(self.advertised),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Both clusters, the namespaces that move, and the way between.

    :param flagged: other namespaces on blue that are flagged as migrated already; None if that could not be read.
    :param home: addresses that lead to blue; read only where green redirects to somewhere.
    :param answers: what green's brokers say about schemas that differ.
    :param calls: HTTP requests that reading it took, on both sides.
    """

    blue: ClusterFacts
    green: ClusterFacts
    redirecting: Redirecting
    namespaces: tuple[NamespaceFacts, ...]
    flagged: tuple[str, ...] | None = ()
    home: frozenset[str] = frozenset()
    answers: tuple[SchemaAnswer, ...] = ()
    calls: int = 0
    seconds: float = 0.0

    def headline(self) -> str:
        """`blue (4.2.4, 2 brokers) → green (4.2.4, 1 broker): 214 namespaces, 3,120 topics compared in 9 s`."""
        topics = sum(len(facts.topics) for facts in self.namespaces)
        return (
            f"{_described(self.blue)} → {_described(self.green)}: {len(self.namespaces):,} namespaces, "
            f"{topics:,} topics compared in {self.seconds:.0f} s, {self.calls:,} calls"
        )


def without_remains(found: Survey) -> Survey:
    """The same as if green had been opened again: without flags, and without what a migration has left on it.

    On the way back green is the cluster that was left: its closed topics are made anew before anything moves, and what
    could not be read of its namespaces under the flag is looked at again then.
    """
    names = {str(facts.namespace) for facts in found.namespaces}
    snapshot = replace(
        found.green.snapshot,
        namespaces=tuple(
            replace(one, policies={**one.policies, "migrated": False}) if one.name in names else one
            for one in found.green.snapshot.namespaces
        ),
        topics=(),
        schemas=(),
        subscriptions=(),
        topic_policies=(),
        notes=tuple(one for one in found.green.snapshot.notes if not any(name in one.resource for name in names)),
    )
    namespaces = tuple(
        replace(facts, green=None if facts.green is None else {**facts.green, "migrated": False}, green_topics={})
        for facts in found.namespaces
    )
    return replace(found, green=replace(found.green, snapshot=snapshot), namespaces=namespaces)


def _described(cluster: ClusterFacts) -> str:
    brokers = len(cluster.snapshot.brokers)
    return f"{cluster.name} ({cluster.snapshot.oldest_version()}, {brokers} broker{'' if brokers == 1 else 's'})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """What a run is going to do, as far as the gates depend on it.

    :param prepares_green: the run itself creates on green what is missing there; else that must be there already.
    :param drain_minutes: how long copying and draining may take.
    :param returns: it is the way back of a migration: green is the cluster that was left, and was opened again.
    """

    prepares_green: bool = True
    drain_minutes: int = 60
    returns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the gates look at."""

    survey: Survey
    strategies: Mapping[NamespaceName, Strategy]
    expected: Expectations = field(default_factory=Expectations)

    @property
    def blue(self) -> ClusterFacts:
        """The cluster that the namespaces leave."""
        return self.survey.blue

    @property
    def green(self) -> ClusterFacts:
        """The cluster that they move to."""
        return self.survey.green

    @property
    def moving(self) -> tuple[NamespaceFacts, ...]:
        """The namespaces that blue really has."""
        return tuple(one for one in self.survey.namespaces if one.blue is not None)

    def replicates(self, name: NamespaceName) -> bool:
        """Whether the namespace is copied before it is switched."""
        return self.strategies.get(name) is Strategy.REPLICATE

    def pair(self) -> Pair:
        """Both snapshots, as the checks that all procedures share take them."""
        blue, green = self.blue.snapshot, self.green.snapshot
        probes = Probes(schemas=self.survey.answers)
        return Pair(blue, green, translate_snapshot(blue, green)[0], probes)
