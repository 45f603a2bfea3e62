"""Green has what blue's clients need, by the plan that would create it: nothing is missing if it is empty (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from urllib.parse import quote

from pulsar_fleet.cluster.admin.call import with_body
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.text import listed
from pulsar_fleet.migration.preflight.gates.catalogue import GATES, Gate, Owner, blocks
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.planning.diff_entry import Resource, same
from pulsar_fleet.planning.plan import Action, Change
from pulsar_fleet.preflight.context import call_text
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.snapshot.model import NamespaceState

_absent = partial(blocks, milder="nothing when the run itself prepares {green}")
_NAMESPACE = _absent(
    "green-namespace-missing",
    Owner.RUN,
    "{blue} terminates its topics anyway, and {green} refuses the clients: a full outage that is not reversible.",
    never_waived="every client stops, and its messages are not stored.",
)
_BY_RESOURCE: Mapping[Resource, Gate] = {
    Resource.NAMESPACE: _NAMESPACE,
    Resource.TENANT: _absent(
        "green-tenant-differs", Owner.RUN, "Its administrators cannot manage the namespaces on {green}."
    ),
    Resource.POLICY: _absent(
        "green-policies-differ", Owner.RUN, "The namespace behaves differently for redirected clients."
    ),
    Resource.TOPIC: _absent(
        "green-topics-missing",
        Owner.RUN,
        "Redirected clients find no topic, or create a plain topic instead of a partitioned topic.",
        never_waived="messages written to a topic with another number of partitions lose the order of their keys.",
    ),
    Resource.SCHEMA: _absent(
        "green-schemas-missing", Owner.RUN, "Redirected clients register schemas in another order, or are refused."
    ),
    Resource.TOPIC_POLICY: _absent(
        "green-topic-policies-differ", Owner.RUN, "The topics behave differently for redirected clients."
    ),
    Resource.SUBSCRIPTION: _absent(
        "green-subscriptions-missing",
        Owner.RUN,
        "A subscription that its redirected consumer creates skips what was written to {green} before.",
        never_waived="messages written to {green} before the consumer connects are never delivered to it.",
    ),
}
_ROLE = _absent(
    "role-missing-on-green",
    Owner.TENANT,
    "{green} refuses its producers and consumers: they hang until the permission is granted there.",
)
_PERMISSION = blocks(
    "change-needs-permission",
    Owner.RUN,
    "The run would need to change it on {green}, where the change can delete what is stored there.",
    never_waived="the run cannot prepare {green} without it.",
)
_IN_USE = blocks(
    "green-in-use",
    Owner.RUN,
    "Applications already use this namespace on {green}; their messages would mix with those of redirected clients.",
)
_SUBSCRIPTION = "subscription "


def green_has_what_blue_has(view: View) -> Iterator[Finding]:
    """One finding for each namespace and kind of resource that green lacks; none where the run creates it itself."""
    if view.expected.prepares_green:
        return
    for (gate, name), changes in sorted(_lacking(view).items(), key=lambda item: (item[0][1], item[0][0])):
        labels = [" ".join(part for part in (change.name, change.field) if part) for change in changes]
        yield GATES[gate].finding(
            name,
            f"{view.green.name} lacks or differs in: {listed(labels)}",
            f"create it on {view.green.name}: onboard {name} from {view.blue.name}, or let this run prepare {{green}}.",
        )


def no_change_needs_permission(view: View) -> Iterator[Finding]:
    """Changes of tenants and namespaces on green that a run makes only by the id of each; the run has no ids.

    Policies of topics are judged when green is prepared: on a topic without messages they harm nothing.
    """
    if not view.expected.prepares_green:
        return
    moving = {facts.namespace for facts in view.prepared}
    for change in plan_changes(view.copied_from_blue, view.green.snapshot, subscriptions=False).needing_permission():
        topics = change.resource in (Resource.TOPIC, Resource.TOPIC_POLICY)
        if topics or (change.namespace is not None and change.namespace not in moving):
            continue
        yield _PERMISSION.finding(
            change.name,
            f"{change.field} is {change.before} on {view.green.name} and {change.after} on {view.blue.name}: "
            f"{change.reason}",
            "decide which value is to apply, and set it on both clusters. The call sets that of {blue} on {green}: "
            "send it where no message is stored there yet, or none that it would delete is needed.",
            call=call_text(view.green.name, *change.calls),
        )


def _lacking(view: View) -> dict[tuple[str, str], list[Change]]:
    """Changes by gate and namespace (or tenant), without the resources of a namespace that is missing itself."""
    green = view.green.snapshot
    plan = plan_changes(view.copied_from_blue, green)
    lasting = _lasting(plan.changes)
    missing = {str(change.namespace) for change in lasting if _makes_namespace(change)}
    read = {namespace.name for namespace in green.namespaces}
    moving = {
        str(facts.namespace): view.replicates(facts.namespace)
        for facts in view.prepared
        # Another gate reports a namespace that exists and could not be read.
        if facts.green is None or str(facts.namespace) in read
    }
    lacking: dict[tuple[str, str], list[Change]] = defaultdict(list)
    for change in lasting:
        gate = _BY_RESOURCE.get(change.resource)
        name = str(change.namespace) if change.namespace else f"tenant {change.name}"
        within = change.namespace is not None
        if gate is None or (within and name not in moving) or (name in missing and not _makes_namespace(change)):
            continue
        if change.action is Action.GROW:
            continue  # The checks that all procedures share report it.
        if change.resource is Resource.SUBSCRIPTION and moving[name]:
            continue  # The cut-over sets these cursors: an existing subscription would get every message twice.
        lacking[gate.id, name].append(change)
    return lacking


def _lasting(changes: Sequence[Change]) -> list[Change]:
    """Without changes that a later change reverts: old schemas need another strategy for a moment."""
    first: dict[str, Change] = {}
    last: dict[str, Change] = {}
    for change in changes:
        key = change.label
        first.setdefault(key, change)
        last[key] = change
    undone = {key for key, change in first.items() if change is not last[key] and same(change.before, last[key].after)}
    return [change for change in changes if change.label not in undone]


def _makes_namespace(change: Change) -> bool:
    return change.resource is Resource.NAMESPACE and change.action is Action.CREATE


def roles_have_their_permissions(view: View) -> Iterator[Finding]:
    """Every role has its permissions on green too: for the namespace, for topics, for subscriptions."""
    if view.expected.prepares_green:
        return
    grants = {state.name: _grants(state) for state in view.green.snapshot.namespaces}
    roles = {state.name: _roles_of_subscriptions(state) for state in view.green.snapshot.namespaces}
    prepared = {str(facts.namespace) for facts in view.prepared} & grants.keys()
    for namespace in view.pair().translated.namespaces:
        if namespace.name not in prepared:
            continue
        for (where, role), actions in sorted(_grants(namespace).items()):
            own = grants[namespace.name].get((where, role), frozenset())
            lacking = actions - own
            if lacking:
                yield _ROLE.finding(
                    namespace.name,
                    f"role {role!r} may {', '.join(sorted(lacking))} on {view.blue.name}"
                    f"{f' ({where})' if where else ''}, not on {view.green.name}",
                    f"grant it on {view.green.name} together with what is granted there already: a grant replaces the "
                    "actions of a role, and the roles of a subscription.",
                    call=_granting(view.green.name, namespace.name, where, role, actions | own, roles[namespace.name]),
                )


def _granting(
    green: str, namespace: str, where: str, role: str, actions: frozenset[str], subscriptions: Mapping[str, list[str]]
) -> str:
    """The whole grant, with what green has."""
    name = NamespaceName.parse(namespace)
    permissions = f"/namespaces/{name.path}/permissions"
    if where.startswith(_SUBSCRIPTION):
        subscription = where.removeprefix(_SUBSCRIPTION)
        roles = sorted({*subscriptions.get(subscription, ()), role})
        return call_text(green, with_body("POST", f"{permissions}/subscription/{quote(subscription, safe='')}", roles))
    path = f"/{TopicName.parse(where).path}/permissions" if where else permissions
    return call_text(green, with_body("POST", f"{path}/{quote(role, safe='')}", sorted(actions)))


def _roles_of_subscriptions(namespace: NamespaceState) -> Mapping[str, list[str]]:
    return (namespace.policies.get("auth_policies") or {}).get("subscription_auth_roles") or {}


def _grants(namespace: NamespaceState) -> dict[tuple[str, str], frozenset[str]]:
    """(topic or subscription, role) → permitted actions; the first part is empty for the whole namespace."""
    rights: JsonObject = namespace.policies.get("auth_policies") or {}
    grants = {("", role): frozenset(actions) for role, actions in (rights.get("namespace_auth") or {}).items()}
    for topic, roles in (rights.get("destination_auth") or {}).items():
        grants |= {(topic, role): frozenset(actions) for role, actions in roles.items()}
    for name, roles in _roles_of_subscriptions(namespace).items():
        grants |= {(f"{_SUBSCRIPTION}{name}", role): frozenset({"consume"}) for role in roles}
    return grants


def green_is_not_in_use(view: View) -> Iterator[Finding]:
    """Clients on green, by the statistics of its brokers, which are up to a minute old."""
    for facts in view.prepared:
        if view.expected.is_failback and not view.replicates(facts.namespace):
            continue  # Applications that restarted connect to the target already; there is no copy to mix with.
        if facts.green_clients:
            versions = ", ".join(f"{count} {version}" for version, count in sorted(facts.green_clients.items()))
            yield _IN_USE.finding(
                str(facts.namespace),
                f"clients on {view.green.name} within the last minute: {versions}",
                f"if they are clients of {view.blue.name} that were redirected or moved by hand, leave them and find "
                "out how "
                "far that went (verify_clusters). Otherwise stop them and run again a minute later.",
            )
