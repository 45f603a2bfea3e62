"""The results of onboarding's steps, as tasks and commands hand them over (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.ledger.artefacts import Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenSnapshot(Document):
    """A stored snapshot of a cluster.

    :param measured: what the checks need besides the snapshot: rights, clock, counts, peers.
    :param calls: admin calls; `counts` are rows of each table.
    :param versions: of the brokers.
    :param rights: a Markdown table, empty where our role may do everything.
    :param not_copied: the scalable topics and the system topics, counted and named; empty without any.
    :param unread: what could not be read and what to do, in a paragraph; empty if it is complete.
    """

    reference: Reference
    measured: Reference
    cluster: str
    counts: Mapping[str, int]
    complete: bool
    calls: int
    versions: tuple[str, ...]
    rights: str
    unread: str = ""
    not_copied: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedChanges(Document):
    """What applying a plan, or a batch of it, did.

    :param counts: number of changes of each outcome.
    :param problems: the first changes that are not in place.
    :param calls: admin calls, reads included.
    """

    plan: str
    target: str
    complete: bool
    counts: Mapping[str, int]
    problems: tuple[str, ...]
    calls: int
