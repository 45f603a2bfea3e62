"""What a run that serves topics read-only changed and confirmed (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_fleet.cluster.document import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Served(Document):
    """What one step changed.

    :param changes: the number of changes that are in place, or of shadow topics that were linked or taken away.
    :param calls: admin calls, reads included.
    :param kept: what stays, and why.
    """

    changes: int
    calls: int
    seconds: float
    kept: tuple[str, ...] = ()
