"""The phases of a namespace in migration, and what is still reversible in each (pure)."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """How far a namespace has come; in this order."""

    REOPENED = "reopened"
    """Only on the way back: the cluster that a namespace returns to takes clients again, and has its topics anew."""
    CHECKED = "checked"
    PREPARED = "prepared"
    FROZEN = "frozen"
    REPLICATED = "replicated"
    QUIESCED = "quiesced"
    SWITCHED = "switched"
    DRAINED = "drained"
    VERIFIED = "verified"
    CLEANED = "cleaned"
    """What continues on green was removed from blue, but something still lives there."""
    FINISHED = "finished"
    UNDONE = "undone"
    """Everything that the run had changed was taken back before the first topic was closed."""


class Strategy(StrEnum):
    """How the messages get to green."""

    REDIRECT = "redirect"
    """Clients are sent to green; what is stored stays on blue until its consumers have drained it there."""

    REPLICATE = "replicate_then_switch"
    """Everything stored is geo-replicated first, subscriptions continue on green where they were."""


_BEFORE_TERMINATION = frozenset(
    {
        Phase.REOPENED,
        Phase.CHECKED,
        Phase.PREPARED,
        Phase.FROZEN,
        Phase.REPLICATED,
        Phase.QUIESCED,
        Phase.UNDONE,
    }
)


def is_reversible(phase: Phase) -> bool:
    """Whether stopping now undoes everything: true until the first topic of the namespace was terminated."""
    return phase in _BEFORE_TERMINATION


def still_reversible(phase: Phase) -> str:
    """One sentence for people: what can still be taken back, and how."""
    match phase:
        case Phase.UNDONE:
            return "nothing is left to take back"
        case Phase.CHECKED:
            return "nothing has been changed"
        case Phase.REOPENED:
            return "stop closes blue again: the flag is set, clients are redirected as before"
        case Phase.PREPARED | Phase.FROZEN | Phase.REPLICATED:
            return (
                "stop takes everything back: replication, overrides, and what the run created on green and nobody uses"
            )
        case Phase.QUIESCED:
            return "stop takes everything back as long as no topic is closed; a topic closes within one check period"
        case _:
            return "topics are closed for good: only a second migration leads back (return_namespaces)"
