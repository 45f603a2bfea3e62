"""What changed among the brokers of both clusters since the gates were evaluated (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.cluster.versions import version_numbers
from pulsar_fleet.migration.preflight.gates.brokers import checks_are_on, creation_is_off
from pulsar_fleet.migration.preflight.view import ClusterFacts
from pulsar_fleet.migration.unread_brokers import not_reported
from pulsar_fleet.preflight.checks.versions import brokers_run_supported_versions
from pulsar_fleet.preflight.context import Pair
from pulsar_fleet.preflight.findings import Finding, blockers
from pulsar_fleet.snapshot.model import BrokerState, Snapshot


@dataclass(frozen=True, slots=True)
class BrokerVersions(Document):
    """The version of every broker, sorted; without addresses, since a broker may get another one when it restarts."""

    blue: tuple[str, ...]
    green: tuple[str, ...]

    @classmethod
    def of(cls, blue: Iterable[BrokerState], green: Iterable[BrokerState]) -> Self:
        """The versions in a snapshot of both clusters."""
        return cls(_versions(blue), _versions(green))

    def sides(self, now: Self) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
        """`blue` and `green`, each with its versions before and now."""
        yield "blue", self.blue, now.blue
        yield "green", self.green, now.green


def upgrades(before: BrokerVersions, now: BrokerVersions) -> list[str]:
    """A sentence for each cluster whose rolling upgrade has begun, or gone on, since the gates and is not finished."""
    return [
        f"The brokers of {side} run {_listed(after)}, at the gates they ran {_listed(earlier)}: "
        "a rolling upgrade is under way"
        for side, earlier, after in before.sides(now)
        if len(set(after)) > 1 and Counter(after) - Counter(earlier)
    ]


def absences(before: BrokerVersions, now: BrokerVersions) -> list[str]:
    """A sentence for each cluster with fewer brokers than at the gates: one restarts, or was removed."""
    return [
        f"{counted(len(after), 'broker')} of {side} answer, at the gates it was {len(earlier)}"
        for side, earlier, after in before.sides(now)
        if len(after) < len(earlier)
    ]


def new_blockers(blue: Snapshot, green: Snapshot, known: Iterable[Finding], *, redirects: bool) -> tuple[Finding, ...]:
    """The blockers of versions and settings of the brokers that the gates did not report: those have a waiver.

    :param redirects: whether blue's brokers redirect the clients.
    """
    findings = [*brokers_run_supported_versions(Pair(blue, green, blue))]
    if redirects:
        facts = ClusterFacts(snapshot=blue, redirect=None)
        findings += [*checks_are_on(facts), *creation_is_off(facts)]
    return tuple(not_reported(blockers(findings), known))


def _versions(brokers: Iterable[BrokerState]) -> tuple[str, ...]:
    return tuple(sorted((broker.version for broker in brokers), key=version_numbers))


def _listed(versions: Sequence[str]) -> str:
    return ", ".join(versions)
