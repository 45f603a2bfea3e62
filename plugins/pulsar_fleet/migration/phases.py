"""The phases of a namespace in migration, and what is still reversible in each (pure)."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """How far a namespace has come; in this order."""

    CHECKED = "checked"
    PREPARED = "prepared"
    FROZEN = "frozen"
    REPLICATED = "replicated"
    QUIESCED = "quiesced"
    SWITCHED = "switched"
    DRAINED = "drained"
    VERIFIED = "verified"
    FINISHED = "finished"


class Strategy(StrEnum):
    """How the messages get to green."""

    REDIRECT = "redirect"
    """Clients are sent to green; what is stored stays on blue until its consumers have drained it there."""

    REPLICATE = "replicate_then_switch"
    """Everything stored is geo-replicated first, subscriptions continue on green where they were."""


_BEFORE_TERMINATION = frozenset({Phase.CHECKED, Phase.PREPARED, Phase.FROZEN, Phase.REPLICATED, Phase.QUIESCED})


def is_reversible(phase: Phase) -> bool:
    """Whether stopping now undoes everything: true until the first topic of the namespace was terminated."""
    return phase in _BEFORE_TERMINATION
