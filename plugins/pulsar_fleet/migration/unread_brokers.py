"""Brokers whose own settings cannot be read: unknown, and accepted as that by a waiver of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import FINDINGS, FINDINGS_BEFORE_CUT_OVER
from pulsar_fleet.preflight.findings import Finding

NOT_READABLE = "broker-not-readable"
"""The finding; a run with it goes on with a waiver only."""


def broker_resource(broker: str, cluster: str) -> str:
    """What the finding about a broker names."""
    return f"broker {broker} of {cluster}"


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """What each broker of a cluster has in effect.

    :param settings: broker (`host:port`) → its settings.
    :param unread: brokers that are accepted as unknown, sorted.
    """

    settings: Mapping[str, Mapping[str, str]]
    unread: tuple[str, ...] = ()


def accepted_as_unread(run: Run) -> frozenset[str]:
    """The brokers that the gates of this run could not read, as `broker_resource` names them.

    A run without a waiver for each has ended at the gates.
    """
    return frozenset(finding.resource for finding in reported_findings(run) if finding.id == NOT_READABLE)


async def brokers_to_ask(admin: AdminClient, accepted: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The live brokers to ask, and those that are accepted as unread, which would take all of a call's retries."""
    brokers = await admin.brokers()
    unread: tuple[str, ...] = ()
    if accepted:
        cluster = await admin.cluster_name()
        unread = tuple(broker for broker in brokers if broker_resource(broker, cluster) in accepted)
    return tuple(broker for broker in brokers if broker not in unread), unread


async def read_settings(admin: AdminClient, run: Run) -> BrokerSettings:
    """The settings of every live broker but those that are accepted as unread.

    :raises Unavailable: another broker does not answer.
    """
    brokers, unread = await brokers_to_ask(admin, accepted_as_unread(run))
    answers = await asyncio.gather(*map(admin.runtime_configuration, brokers))
    return BrokerSettings(dict(zip(brokers, answers, strict=True)), unread)


def reported_findings(run: Run) -> list[Finding]:
    """The findings of both evaluations of the gates; a run with a blocker among them has a waiver, or ended there."""
    rows = [*(run.stored(FINDINGS) or ()), *(run.stored(FINDINGS_BEFORE_CUT_OVER) or ())]
    return [Finding.from_json(row) for row in rows]


def not_reported(findings: Iterable[Finding], reported: Iterable[Finding]) -> list[Finding]:
    """The findings that the gates did not report, by id and resource: what they reported has a waiver."""
    known = {(finding.id, finding.resource) for finding in reported}
    return [finding for finding in findings if (finding.id, finding.resource) not in known]
