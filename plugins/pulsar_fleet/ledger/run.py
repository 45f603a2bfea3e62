"""One run of a procedure: its id, and where its records go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Run:
    """What every step needs to record what it did.

    :param id: unique over all procedures and stable over retries, such as `migrate_namespaces/manual__2026-11-21`.
    """

    id: str
    ledger: Ledger
    artefacts: Artefacts

    @classmethod
    def open(cls, run_id: str) -> Self:
        """The run's records in the default ledger and artefact store; again gives the same."""
        return cls(run_id, Ledger.open(), Artefacts.open())
