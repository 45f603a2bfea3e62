"""What a change can destroy: the linter that marks every planned change, and the guards that no call passes by (pure).

The rules themselves, with their hazard and their reason, are the table in `hazard_rules`.
"""

from __future__ import annotations

from collections.abc import Iterable

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.planning.hazards.model import Hazard, Mark, cluster_lists, is_global_topic_list, worst
from pulsar_fleet.planning.hazards.rules import CALL_RULES, VALUE_RULES, Setting


def lint_calls(calls: Iterable[Call], own: str) -> tuple[Mark, ...]:
    """What calls to the cluster `own` can do by themselves, whatever a plan says of them; the worst comes first."""
    marks = [rule.mark for call in calls for rule in CALL_RULES if rule.matches(call, own)]
    return _worst_first(marks)


def lint_settings(settings: Iterable[Setting]) -> tuple[Mark, ...]:
    """What going from one value to another can do; several settings stand for all that may be in force."""
    marks = [rule.mark for setting in settings for rule in VALUE_RULES if rule.matches(setting)]
    return _worst_first(marks)


def hazard_of_call(call: Call, own: str = "") -> Hazard:
    """The least hazard that a call has by itself; without `own`, cluster lists are not judged."""
    return worst(*(rule.mark.hazard for rule in CALL_RULES if (own or not rule.names_own) and rule.matches(call, own)))


def guard_call(call: Call, own: str) -> None:
    """Refuse a call that no permission makes right. Every planned call passes here right before it is sent."""
    guard_cluster_lists(call, own)
    for rule in CALL_RULES:
        if rule.never and rule.matches(call, own):
            raise PreconditionFailed(f"{call.text()} on {own!r}: {rule.mark.reason}. Nothing was sent.", cluster=own)


def guard_cluster_lists(call: Call, own: str) -> None:
    """Refuse a cluster list without the name of the cluster that is asked to store it.

    The broker answers 200 to such a list and deletes all topics of the namespace within a second. There is no way
    around this function: every call passes it right before it is sent, with the name that the brokers themselves gave.
    """
    for field, names in cluster_lists(call):
        if own not in names:
            raise PreconditionFailed(
                f"{call.text()} would set {field} to {sorted(names)!r} on {own!r}, without {own!r} itself: "
                f"{own} would delete all its topics there. Nothing was sent; add {own!r} to the list.",
                cluster=own,
            )
    if is_global_topic_list(call):
        raise PreconditionFailed(
            f"{call.text()}: a global cluster list of a topic deletes the topic on every cluster that it leaves out. "
            "Set the list of the namespace instead.",
            cluster=own,
        )


def _worst_first(marks: Iterable[Mark]) -> tuple[Mark, ...]:
    return tuple(sorted(dict.fromkeys(marks), key=lambda mark: -list(Hazard).index(mark.hazard)))
