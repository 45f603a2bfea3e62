"""Green holds what blue's clients need, by the same plan that would create it: nothing to do means nothing is missing.

Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.migration.preflight.gates.catalogue import GATES, Gate, Owner, blocks, first_of
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.planning.diff_entry import Resource, same
from pulsar_fleet.planning.plan import Action, Change
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.snapshot.model import NamespaceState

_absent = partial(blocks, milder="nothing when the run itself prepares green")
_NAMESPACE = _absent(
    "green-namespace-missing",
    Owner.RUN,
    "Blue closes its topics anyway, and nobody is let in on green: a full outage that cannot be taken back.",
    never_waived="every client stops, and what it would have written is not stored.",
)
_BY_RESOURCE: Mapping[Resource, Gate] = {
    Resource.NAMESPACE: _NAMESPACE,
    Resource.TENANT: _absent(
        "green-tenant-differs", Owner.RUN, "Its administrators cannot look after the namespaces on green."
    ),
    Resource.POLICY: _absent(
        "green-policies-differ", Owner.RUN, "The namespace behaves differently for the clients that arrive."
    ),
    Resource.TOPIC: _absent(
        "green-topics-missing",
        Owner.RUN,
        "Clients that arrive find no topic, or one without partitions is made in the place of a partitioned one.",
        never_waived="what is written to a topic of the wrong shape has lost the order of its keys.",
    ),
    Resource.SCHEMA: _absent(
        "green-schemas-missing", Owner.RUN, "Clients that arrive register schemas in another order, or are refused."
    ),
    Resource.TOPIC_POLICY: _absent(
        "green-topic-policies-differ", Owner.RUN, "The topics behave differently for the clients that arrive."
    ),
    Resource.SUBSCRIPTION: _absent(
        "green-subscriptions-missing",
        Owner.RUN,
        "A subscription that is made when its consumer arrives skips what was written to green before that.",
        never_waived="messages written to green before the consumer arrives are never delivered to it.",
    ),
}
_ROLE = _absent(
    "role-missing-on-green",
    Owner.TENANT,
    "Its producers and consumers are refused on green: they hang until the right is granted there.",
)
_IN_USE = blocks(
    "green-in-use",
    Owner.RUN,
    "Applications already use this namespace on green; their messages would mix with those that arrive.",
)


def green_holds_what_blue_holds(view: View) -> Iterator[Finding]:
    """One finding for each namespace and kind of thing that green lacks; none where the run creates it itself."""
    if view.expected.prepares_green:
        return
    for (gate, name), changes in sorted(_lacking(view).items(), key=lambda item: (item[0][1], item[0][0])):
        labels = [" ".join(part for part in (one.name, one.field) if part) for one in changes]
        yield GATES[gate].found(
            name,
            f"{view.green.name} lacks or has differently: {first_of(labels)}",
            f"make it on {view.green.name}: onboard {name} from {view.blue.name}, or let this run prepare green.",
        )


def _lacking(view: View) -> dict[tuple[str, str], list[Change]]:
    """Changes by gate and namespace (or tenant); what lies in a namespace that is missing as a whole is left out."""
    blue, green = view.blue.snapshot, view.green.snapshot
    unread = {note.resource for one in (blue, green) for note in one.unreadable}
    plan = plan_changes(blue, green, accept_incomplete=unread)
    lasting = _lasting(plan.changes)
    missing = {str(change.namespace) for change in lasting if _makes_namespace(change)}
    read = {one.name for one in green.namespaces}
    moving = {
        str(facts.namespace): view.replicates(facts.namespace)
        for facts in view.moving
        # One that is there and could not be read is told as that.
        if facts.green is None or str(facts.namespace) in read
    }
    found: dict[tuple[str, str], list[Change]] = defaultdict(list)
    for change in lasting:
        gate = _BY_RESOURCE.get(change.resource)
        name = str(change.namespace) if change.namespace else f"tenant {change.name}"
        within = change.namespace is not None
        if gate is None or (within and name not in moving) or (name in missing and not _makes_namespace(change)):
            continue
        if change.action is Action.GROW:
            continue  # The checks that all procedures share tell it.
        if change.resource is Resource.SUBSCRIPTION and moving[name]:
            continue  # Placed by position at the switch: one that waits there already would get everything twice.
        found[gate.id, name].append(change)
    return found


def _lasting(changes: Sequence[Change]) -> list[Change]:
    """Without those that a later one takes back: a strategy is opened for a moment to let old schemas in."""
    first: dict[str, Change] = {}
    last: dict[str, Change] = {}
    for change in changes:
        key = change.label
        first.setdefault(key, change)
        last[key] = change
    undone = {key for key, one in first.items() if one is not last[key] and same(one.before, last[key].after)}
    return [change for change in changes if change.label not in undone]


def _makes_namespace(change: Change) -> bool:
    return change.resource is Resource.NAMESPACE and change.action is Action.CREATE


def roles_have_their_rights(view: View) -> Iterator[Finding]:
    """Every role with rights on blue has them on green: for the namespace, for single topics, for subscriptions."""
    if view.expected.prepares_green:
        return
    held = {one.name: _grants(one) for one in view.green.snapshot.namespaces}
    for namespace in view.pair().wanted.namespaces:
        if namespace.name not in held:
            continue
        for (where, role), actions in sorted(_grants(namespace).items()):
            lacking = actions - held[namespace.name].get((where, role), frozenset())
            if lacking:
                yield _ROLE.found(
                    namespace.name,
                    f"role {role!r} may {', '.join(sorted(lacking))} on {view.blue.name}"
                    f"{f' ({where})' if where else ''}, not on {view.green.name}",
                    f"grant it on {view.green.name}.",
                )


def _grants(namespace: NamespaceState) -> dict[tuple[str, str], frozenset[str]]:
    """(topic or subscription, role) → what it may do; an empty place is the namespace as a whole."""
    rights: JsonObject = namespace.policies.get("auth_policies") or {}
    found = {("", role): frozenset(actions) for role, actions in (rights.get("namespace_auth") or {}).items()}
    for topic, roles in (rights.get("destination_auth") or {}).items():
        found |= {(topic, role): frozenset(actions) for role, actions in roles.items()}
    for name, roles in (rights.get("subscription_auth_roles") or {}).items():
        found |= {(f"subscription {name}", role): frozenset({"consume"}) for role in roles}
    return found


def green_is_not_in_use(view: View) -> Iterator[Finding]:
    """By the statistics of green's brokers, which are up to a minute old."""
    for facts in view.moving:
        if view.expected.returns and not view.replicates(facts.namespace):
            continue  # Whoever started anew meanwhile is where all will be, and there is no copy to spoil.
        if facts.green_clients:
            versions = ", ".join(f"{count} {version}" for version, count in sorted(facts.green_clients.items()))
            yield _IN_USE.found(
                str(facts.namespace),
                f"clients on {view.green.name} within the last minute: {versions}",
                "stop them and run again a minute later, or choose another target.",
            )
