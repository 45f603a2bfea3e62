"""What was read from both clusters before a migration, with what could not be read (pure)."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import Note, PartialReads, Problem
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.text import counted, duration
from pulsar_fleet.cluster.versions import Redirect, release_of
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import REDIRECT
from pulsar_fleet.migration.cutover.redirect import ADDRESS_SCHEMES
from pulsar_fleet.migration.facts import FlaggedNamespace, NamespaceFacts
from pulsar_fleet.migration.model import Phase, Strategy
from pulsar_fleet.migration.third_clusters import ThirdLists
from pulsar_fleet.planning.translation import translate_snapshot, without_way_back
from pulsar_fleet.preflight.bookies import Bookies
from pulsar_fleet.preflight.context import Measurements, Pair, Probes
from pulsar_fleet.preflight.schema_probe import SchemaAnswer
from pulsar_fleet.snapshot.cluster_reader import list_namespaces
from pulsar_fleet.snapshot.inventory import read_clients
from pulsar_fleet.snapshot.model import BrokerState, Snapshot
from pulsar_fleet.snapshot.resources import is_terminated, read_partition_counts

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GreenTargets:
    """Green's brokers, and the addresses that lead to them."""

    brokers: tuple[BrokerState, ...]
    addresses: frozenset[str]


async def flagged_names(admin: AdminClient) -> tuple[NamespaceName, ...] | None:
    """Every flagged namespace of a cluster, one call for each tenant and namespace; None if not all could be read."""
    try:
        listed = await list_namespaces(admin, await admin.tenants())
        names = sorted(name for namespaces in listed.values() for name in namespaces or ())
        documents = await asyncio.gather(*(admin.namespace(name) for name in names))
    except FleetError:
        return None
    return tuple(name for name, document in zip(names, documents, strict=True) if (document or {}).get("migrated"))


async def read_flagged(
    blue: AdminClient, green: AdminClient, run: Run, moving: Collection[NamespaceName], targets: GreenTargets
) -> tuple[FlaggedNamespace, ...] | None:
    """What is known of each flagged namespace on blue that does not move; None if not all could be read.

    Calls, in addition to those of `flagged_names`: for each of them its lists of topics on both clusters, and one for
    each topic up to the first that is terminated; one for each of green's brokers.
    """
    flagged = await flagged_names(blue)
    if flagged is None:
        return None
    names = [name for name in flagged if name not in moving]
    clients = await read_clients(green, targets.brokers, PartialReads()) if names else []
    in_use = {state.namespace for state in clients}
    return tuple(await asyncio.gather(*(_read(blue, green, run, name, in_use, targets.addresses) for name in names)))


async def _read(
    blue: AdminClient,
    green: AdminClient,
    run: Run,
    name: NamespaceName,
    in_use: Collection[str],
    addresses: frozenset[str],
) -> FlaggedNamespace:
    moved_by = run.ledger.last_run_in(str(name), Phase.CUT_OVER) or ""
    document = Run(moved_by, run.ledger, run.artefacts).stored(REDIRECT) if moved_by else None
    terminated, lacking = None, tuple[str, ...]()
    try:
        topics = await read_partition_counts(blue, name)
        terminated = await _any_terminated(blue, topics)
        lacking = await _lacking(green, name, topics)
    except FleetError as error:
        log.warning("%s is flagged, and its topics could not be read: %s", name, error)
    return FlaggedNamespace(
        name=str(name),
        terminated=terminated,
        lacking=lacking,
        moved_by=moved_by,
        is_on_green=bool(verified_addresses(document or {}) & addresses) or str(name) in in_use,
    )


def verified_addresses(redirect: JsonObject) -> frozenset[str]:
    """The addresses in a stored `redirect.json` that a cluster really has: no guesses for services that it lacks."""
    placeholders = redirect.get("placeholders") or ()
    document = redirect.get("document") or {}
    own = (str(url) for key, url in document.items() if key not in placeholders)
    return frozenset((*own, *redirect.get("advertised", ())))


async def _any_terminated(blue: AdminClient, topics: Collection[TopicName]) -> bool:
    for topic in topics:
        if is_terminated(await blue.internal_info(topic)):
            return True
    return False


async def _lacking(green: AdminClient, name: NamespaceName, topics: Collection[TopicName]) -> tuple[str, ...]:
    if await green.namespace(name) is None:
        return (f"namespace {name}",)
    existing = await read_partition_counts(green, name)
    return tuple(str(topic) for topic in topics if topic not in existing)


_PORTS = {
    "webServicePort": "http",
    "webServicePortTls": "https",
    "brokerServicePort": "pulsar",
    "brokerServicePortTls": "pulsar+ssl",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """A cluster, as far as the gates check it.

    :param snapshot: brokers, policies, topics, schemas, subscriptions of the namespaces that move.
    :param redirect: the stored `ClusterUrl` for its clients, empty if never set, None if it could not be read.
    :param notes: what could not be read, in addition to the snapshot's notes.
    """

    snapshot: Snapshot
    redirect: JsonObject | None
    notes: tuple[Note, ...] = ()

    @property
    def name(self) -> str:
        """The cluster's own name."""
        return self.snapshot.cluster

    @property
    def unflagged(self) -> str:
        """The version of its brokers that can redirect no single namespace; empty if they all can, or may be able."""
        version = self.snapshot.oldest_version()
        release = release_of(version)
        return "" if release is None or Redirect.NAMESPACE in release.redirects else version

    @property
    def brokers(self) -> Mapping[str, JsonObject]:
        """`host:port` → effective configuration of each broker."""
        return {broker.address: broker.configuration for broker in self.snapshot.brokers}

    @property
    def unread(self) -> tuple[Note, ...]:
        """What exists and could not be read, and what our role may not read."""
        wrong = (Problem.UNREADABLE, Problem.HIDDEN)
        return tuple(note for note in (*self.snapshot.notes, *self.notes) if note.problem in wrong)

    @property
    def has_redirect(self) -> bool:
        """Whether one is stored, even without addresses: only then do flags have an effect (observed)."""
        return self.redirect is None or "migratedClusterUrl" in self.redirect

    @property
    def redirect_addresses(self) -> Mapping[str, str]:
        """The stored addresses of its redirect by their keys."""
        document = (self.redirect or {}).get("migratedClusterUrl") or {}
        return {key: str(url) for key, url in document.items() if key in ADDRESS_SCHEMES and url}

    @property
    def broker_addresses(self) -> frozenset[str]:
        """Those of `redirect_addresses` to which clients connect."""
        return frozenset(url for key, url in self.redirect_addresses.items() if key.startswith("broker"))

    def has_terminated(self, namespace: NamespaceName) -> bool:
        """Whether it has terminated a topic of the namespace, or one of its partitions."""
        inside = f"://{namespace}/"
        return any(topic.terminated and inside in topic.name for topic in self.snapshot.topics)

    def offers(self) -> frozenset[str]:
        """Kinds of service that any of its brokers has: `pulsar`, `pulsar+ssl`, `http`, `https`."""
        shown = ((kind, settings.get(key)) for settings in self.brokers.values() for key, kind in _PORTS.items())
        # Shown as `Optional[6650]`, `Optional.empty`, `6650` or nothing.
        return frozenset(kind for kind, value in shown if re.search(r"\d", str(value or "")))


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressProbe:
    """The result of a connection to one address of the redirect.

    :param placeholder: green has no service of that kind, and the address is a guess.
    :param error: why the connection failed; empty if it did not.
    :param answered: the broker behind it, by its own advertised address; empty if not known.
    :param detail: why the broker is not known.
    """

    key: str
    url: str
    placeholder: bool = False
    error: str = ""
    answered: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedirectProbe:
    """Where blue's clients would be redirected, and what answers there.

    :param advertised: the advertised addresses of green's brokers, by green's admin API.
    :param credentials: green's error for the credentials that we use for blue; empty if green accepts them.
    :param trust: the error for green's certificate with blue's trust store; empty if it is trusted.
    :param unanswered: why green could not be asked about both; empty if it answered.
    """

    document: JsonObject
    probes: tuple[AddressProbe, ...]
    advertised: frozenset[str] = frozenset()
    credentials: str = ""
    trust: str = ""
    unanswered: str = ""

    def to_json(self) -> JsonObject:
        """As a JSON object; `Redirect.from_json` reads the part that the cut-over stores."""
        return {
            "schema_version": 1,
            "document": dict(self.document),
            "placeholders": [probe.key for probe in self.probes if probe.placeholder],
            "probes": [asdict(probe) for probe in self.probes],
            "advertised": sorted(self.advertised),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Both clusters, the namespaces that move, and the redirect.

    :param stored_probes: what answers at the addresses that blue redirects to, where this run would store others.
    :param flagged: other namespaces on blue that are flagged already; None if they could not be read.
    :param flagged_on_green: read only where green redirects to another cluster than blue; None if that failed.
    :param home: addresses that lead to blue; read only where green has a redirect.
    :param left_out: namespaces on blue that do not move; read only where its brokers flag the whole cluster; None if
        they could not be read.
    :param answers: the answers of green's brokers about schemas that differ.
    :param bookies: of green.
    :param calls: HTTP requests of the survey, to both clusters.
    """

    blue: ClusterFacts
    green: ClusterFacts
    redirect_probe: RedirectProbe
    namespaces: tuple[NamespaceFacts, ...]
    stored_probes: tuple[AddressProbe, ...] = ()
    flagged: tuple[FlaggedNamespace, ...] | None = ()
    flagged_on_green: tuple[str, ...] | None = ()
    home: frozenset[str] = frozenset()
    left_out: tuple[str, ...] | None = ()
    answers: tuple[SchemaAnswer, ...] = ()
    bookies: Bookies | None = None
    calls: int = 0
    seconds: float = 0.0

    def headline(self) -> str:
        """`blue (4.2.4, 2 brokers) → green (4.2.4, 1 broker): 214 namespaces, 3,120 topics compared in 9 s`."""
        topics = sum(len(facts.topics) for facts in self.namespaces)
        return (
            f"{_described(self.blue)} → {_described(self.green)}: {counted(len(self.namespaces), 'namespace')}, "
            f"{counted(topics, 'topic')} compared in {duration(self.seconds)}, {counted(self.calls, 'call')}"
        )


def without_leftovers(survey: Survey) -> Survey:
    """The survey as if green had been reopened: without flags, and without what a migration has left on it.

    On a failback green is the cluster that clients left: its terminated topics are recreated before anything moves, and
    what could not be read of its namespaces under the flag is read again then.
    """
    names = {str(facts.namespace) for facts in survey.namespaces}
    snapshot = replace(
        survey.green.snapshot,
        namespaces=tuple(
            replace(state, policies={**state.policies, "migrated": False}) if state.name in names else state
            for state in survey.green.snapshot.namespaces
        ),
        topics=(),
        schemas=(),
        subscriptions=(),
        topic_policies=(),
        notes=tuple(note for note in survey.green.snapshot.notes if not any(name in note.resource for name in names)),
    )
    namespaces = tuple(
        replace(facts, green=None if facts.green is None else {**facts.green, "migrated": False})
        for facts in survey.namespaces
    )
    return replace(survey, green=replace(survey.green, snapshot=snapshot), namespaces=namespaces)


def _described(cluster: ClusterFacts) -> str:
    return f"{cluster.name} ({cluster.snapshot.oldest_version()}, {counted(len(cluster.snapshot.brokers), 'broker')})"


@dataclass(frozen=True, slots=True, kw_only=True)
class DagParsing:
    """Airflow's settings for the parsing of DAG files, in seconds.

    :param timeout: a parse that takes longer is killed.
    :param interval: from the end of a parse to the next one.
    :param stale_after: a DAG is deactivated if its last complete parse is so much older than its last attempt.
    """

    timeout: int
    interval: int
    stale_after: int

    @property
    def needed(self) -> int:
        """The largest `stale_after` with which two killed attempts in a row deactivate the DAG."""
        return 2 * (self.interval + self.timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverridesWatch:
    """Whether `watch_overrides` restores what this run leaves if it dies.

    :param minutes: since its last run began; None if it never ran.
    :param clusters: the connections that it watched then.
    """

    minutes: float | None = None
    clusters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """What a run is going to do, as far as the gates depend on it.

    :param prepares_green: the run itself creates what is missing on green; else it must exist already.
    :param drain_minutes: how long replication and drain may take.
    :param is_failback: the run reverts a migration: green is the cluster that clients left, and was reopened.
    :param continues: the run moves a later wave of a plan: its waivers may name what an earlier wave moved.
    :param dag_parsing: None outside Airflow.
    :param unload: whether the run unloads the topics that it has terminated.
    :param group: of the applications whose document leads to green in the end; empty where none does.
    """

    prepares_green: bool = True
    drain_minutes: int = 60
    is_failback: bool = False
    continues: bool = False
    dag_parsing: DagParsing | None = None
    unload: bool = True
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The input of the gates.

    :param connections: of blue and green, as forms and commands take them.
    :param watch: None outside Airflow.
    :param thirds: further cluster that the run has a connection to → namespace → the lists that it has there.
    :param third_connections: as `connections`.
    """

    survey: Survey
    strategies: Mapping[NamespaceName, Strategy]
    connections: tuple[str, str]
    expected: Expectations = field(default_factory=Expectations)
    watch: OverridesWatch | None = None
    thirds: Mapping[str, Mapping[NamespaceName, ThirdLists]] = field(default_factory=dict)
    third_connections: tuple[str, ...] = ()

    @property
    def names(self) -> dict[str, str]:
        """`blue` and `green` → the cluster's own name."""
        return {"blue": self.blue.name, "green": self.green.name}

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
        """The namespaces that exist on blue."""
        return tuple(facts for facts in self.survey.namespaces if facts.blue is not None)

    @property
    def prepared(self) -> tuple[NamespaceFacts, ...]:
        """Those of `moving` for which green is made equal to blue; the applications of the others use green already."""
        return tuple(facts for facts in self.moving if not self.is_moved_before(facts.namespace))

    @property
    def redirected(self) -> tuple[NamespaceFacts, ...]:
        """Those of `moving` whose clients blue would redirect to green."""
        return tuple(facts for facts in self.moving if self.redirects(facts.namespace))

    @property
    def flags_cluster(self) -> bool:
        """Whether one flag redirects the clients of every namespace at once."""
        return any(strategy.flags_cluster for strategy in self.strategies.values())

    def replicates(self, name: NamespaceName) -> bool:
        """Whether the namespace is replicated before the cut-over."""
        return self._strategy(name).copies

    def redirects(self, name: NamespaceName) -> bool:
        """Whether blue redirects the clients of the namespace to green."""
        return self._strategy(name).redirects

    def ends_blue(self, name: NamespaceName) -> bool:
        """Whether blue refuses producers in the end; else both clusters replicate to each other."""
        return self._strategy(name).ends_blue

    def is_moved_before(self, name: NamespaceName) -> bool:
        """Whether the applications of the namespace are on green already."""
        return self._strategy(name).is_moved_before

    def leads(self, third: str, name: NamespaceName) -> bool:
        """Whether the run leads the replication of a third cluster into the namespace from blue to green."""
        lists, strategy = self.thirds.get(third, {}).get(name), self._strategy(name)
        if lists is None or not lists.names(self.blue.name) or lists.names(self.green.name):
            return False
        return strategy.redirects and not strategy.copies and not strategy.is_moved_before

    def _strategy(self, name: NamespaceName) -> Strategy:
        return self.strategies.get(name, Strategy.REDIRECT)

    @property
    def copied_from_blue(self) -> Snapshot:
        """What green is to be equal to: blue, without making green replicate into it."""
        return without_way_back(self.blue.snapshot, self.green.snapshot)

    def pair(self) -> Pair:
        """Both snapshots, as input of the checks that all procedures share."""
        blue, green = self.copied_from_blue, self.green.snapshot
        probes = Probes(schemas=self.survey.answers, target=Measurements(bookies=self.survey.bookies))
        return Pair(blue, green, translate_snapshot(blue, green)[0], probes)
