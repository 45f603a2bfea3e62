"""The classes of hazard (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Hazard(StrEnum):
    """What is needed to go back, in rising order."""

    NONE = "none"
    """It adds something; nothing that was there changes."""
    REVERSIBLE = "reversible"
    """Setting the value before brings the state before."""
    IRREVERSIBLE = "irreversible"
    """It cannot be undone, or the broker discards messages because of it."""
    DESTRUCTIVE = "destructive"
    """It deletes topics, namespaces or backlogs at once."""

    @property
    def needs_permission(self) -> bool:
        """Whether the operator has to allow exactly this change."""
        return self in (Hazard.IRREVERSIBLE, Hazard.DESTRUCTIVE)


_ORDER = tuple(Hazard)


@dataclass(frozen=True, slots=True)
class Mark:
    """A hazard that a rule found, and what happens, as the end of a sentence."""

    hazard: Hazard
    reason: str


def worst(*hazards: Hazard) -> Hazard:
    """The highest of some hazards."""
    return max(hazards, key=_ORDER.index, default=Hazard.NONE)
