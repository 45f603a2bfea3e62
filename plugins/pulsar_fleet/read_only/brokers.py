"""What brokers of its own for a namespace prevents or takes from others, and what readers cost (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.preflight.context import blocker, warning
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.read_only.isolation import (
    brokers_of,
    covered_brokers,
    covers_namespace,
    free_brokers,
    is_among,
    is_own,
    isolation_document,
    not_live,
    policy_name,
)
from pulsar_fleet.read_only.request import Request
from pulsar_fleet.read_only.state import Brokers, Observed

FREE_BROKERS = 2
"""A primary broker serves no other namespaces: with one free broker, its death would end all of them (observed)."""


def check_brokers(observed: Observed, request: Request) -> Iterator[Finding]:
    """Findings of the brokers that the namespace is to have; none if it is to have none of its own."""
    brokers, name = observed.brokers, str(request.namespace)
    if not brokers.wanted:
        return
    if brokers.unable:
        broker, manager = next(iter(brokers.unable.items()))
        yield blocker(
            "isolation-not-followed",
            broker,
            f"load manager {manager}",
            "It does not follow isolation policies: readers would stay where they are.",
            "leave 'brokers' empty, or use brokers with ModularLoadManagerImpl or ExtensibleLoadManagerImpl.",
        )
        return
    chosen = brokers_of(brokers.wanted, brokers.live)
    if not chosen:
        yield blocker(
            "brokers-not-alive",
            name,
            f"{listed(brokers.wanted)}: alive are {listed(brokers.live)}",
            "No broker would take the namespace, so none of its readers could connect.",
            "correct 'brokers', or start one of them.",
        )
        return
    for broker in not_live(brokers.wanted, brokers.live):
        yield warning(
            "broker-not-alive",
            broker,
            f"alive are {listed(brokers.live)}",
            "The namespace has fewer brokers than it was given.",
            "correct 'brokers', or start it.",
        )
    yield from _other_policies(brokers, chosen, request.namespace)
    yield from _free(brokers, request.namespace)
    if changes_policy(observed, request.namespace):
        yield _lost(brokers, chosen)


def _other_policies(brokers: Brokers, chosen: tuple[str, ...], namespace: NamespaceName) -> Iterator[Finding]:
    for name, policy in _others(brokers.policies, namespace).items():
        if covers_namespace(policy, namespace) or name == policy_name(namespace):
            yield blocker(
                "namespace-of-other-policy",
                name,
                f"covers {listed(policy.get('namespaces') or ())}",
                f"Two isolation policies would say which brokers serve {namespace}.",
                f"name another namespace, or take {namespace} out of that policy.",
            )
        if shared := covered_brokers(policy, chosen):
            yield blocker(
                "brokers-of-other-policy",
                name,
                f"has {listed(shared)}",
                "The namespaces of both policies would share these brokers.",
                "name other brokers.",
            )


def _free(brokers: Brokers, namespace: NamespaceName) -> Iterator[Finding]:
    after = {**brokers.policies, policy_name(namespace): isolation_document(namespace, brokers.wanted)}
    free = free_brokers(brokers.live, after)
    if len(free) < FREE_BROKERS:
        yield blocker(
            "too-few-free-brokers",
            str(namespace),
            f"{len(free)} of {counted(len(brokers.live), 'broker')} would be free of isolation policies",
            f"Other namespaces need at least {FREE_BROKERS}: without a free broker none of them is served.",
            "name fewer brokers, or add brokers to the cluster.",
            values=(len(brokers.live), len(free)),
        )


def _lost(brokers: Brokers, chosen: tuple[str, ...]) -> Finding:
    bundles = sum(brokers.bundles.values())
    stay = f", and {counted(bundles, 'bundle')} of other namespaces that they own now stay until unloaded"
    alone = " While this one is down, its readers cannot connect." if len(chosen) == 1 else ""
    return warning(
        "brokers-lost-for-others",
        listed(chosen),
        f"{len(chosen)} of {counted(len(brokers.live), 'broker')}{stay if bundles else ''}",
        f"No other namespace is given to {'it' if len(chosen) == 1 else 'them'} any more.{alone}",
        "check that the other brokers carry all other namespaces, then approve.",
    )


def check_owners(observed: Observed, request: Request) -> Iterator[Finding]:
    """Alarms of a namespace with brokers of its own: its isolation policy is gone, or a topic is on another broker."""
    brokers = observed.brokers
    if not brokers.wanted:
        return
    name = policy_name(request.namespace)
    if changes_policy(observed, request.namespace):
        yield blocker(
            "isolation-policy-changed" if name in brokers.policies else "isolation-policy-missing",
            name,
            f"the brokers of {request.namespace} are {listed(brokers.wanted)}",
            "Readers may be served by any broker from the next load of a bundle on, and others by theirs.",
            "run serve_read_only with these topics again: it sets the policy.",
        )
    for shadow in observed.shadows.values():
        for topic, owner in shadow.owners.items():
            if not is_among(brokers.wanted, owner):
                yield blocker(
                    "topic-on-other-broker",
                    str(topic),
                    f"on {owner or 'no broker'}, and its brokers are {listed(brokers.wanted)}",
                    "Its readers use bandwidth of a broker that serves other namespaces."
                    if owner
                    else "Its readers cannot connect.",
                    "run serve_read_only with this topic again: it moves the bundle."
                    if owner
                    else "start one of these brokers.",
                )


def changes_policy(observed: Observed, namespace: NamespaceName) -> bool:
    """Whether the namespace's isolation policy is missing, or has another value than a run writes."""
    wanted = observed.brokers.wanted
    if not wanted:
        return False
    return observed.brokers.policies.get(policy_name(namespace)) != isolation_document(namespace, wanted)


def _others(policies: Mapping[str, JsonObject], namespace: NamespaceName) -> dict[str, JsonObject]:
    own = policy_name(namespace)
    return {name: policy for name, policy in policies.items() if name != own or not is_own(namespace, policy)}


_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def amount(number: float) -> str:
    """`812 bytes`, `1.2 MB`."""
    unit = 0
    while number >= 1000 and unit < len(_UNITS) - 1:
        number, unit = number / 1000, unit + 1
    return f"{number:,.1f} {_UNITS[unit]}" if unit else f"{number:,.0f} bytes"


def cost_lines(observed: Observed, request: Request) -> tuple[str, ...]:
    """Stored bytes that are shared, bytes per second by broker, and the brokers of readers; a sentence each."""
    present = [source for source in observed.sources if source.can_be_served]
    if not present:
        return ()
    stored = sum(source.stored_bytes for source in present)
    topics = counted(len(present), "topic")
    lines = [
        f"Readers share {amount(stored)} that {topics} {'stores' if len(present) == 1 else 'store'}; "
        "a copy on another cluster would store as much again."
    ]
    sent: dict[str, float] = {}
    for source in present:
        for broker, rate in source.sent.items():
            sent[broker] = sent.get(broker, 0.0) + rate
    subject = "it" if len(present) == 1 else "them"
    lines += [
        f"{broker or 'No broker'} sends {amount(rate)}/s to subscriptions of {subject} now."
        for broker, rate in sorted(sent.items())
    ]
    return (*lines, *_readers(observed, request, sent))


def _readers(observed: Observed, request: Request, sent: Mapping[str, float]) -> Iterator[str]:
    """Where the bytes go of subscriptions that move to the shadow topics."""
    brokers = observed.brokers
    if not brokers.wanted:
        yield "Subscriptions that move to the shadow topics are sent theirs by any broker, which may be the same one."
        return
    chosen = brokers_of(brokers.wanted, brokers.live)
    after = {**brokers.policies, policy_name(request.namespace): isolation_document(request.namespace, brokers.wanted)}
    yield (
        f"Subscriptions that move to the shadow topics are sent theirs by {listed(chosen)}; "
        f"{len(free_brokers(brokers.live, after))} of {len(brokers.live)} brokers stay free for all other namespaces."
    )
    if both := sorted({*sent} & {*chosen}):
        yield f"{listed(both)} owns some of the sources until their bundles are unloaded."
