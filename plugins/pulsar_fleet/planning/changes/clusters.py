"""The change that removes a difference in a cluster-wide resource, or the reason to leave it alone (pure)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from urllib.parse import quote, urlsplit

from pulsar_fleet.cluster.admin.call import with_body
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.redaction import fingerprints
from pulsar_fleet.planning.diff_entry import Difference, Side
from pulsar_fleet.planning.plan import Change, LeftAlone

# A primary broker of an isolation policy serves no other namespaces, so some brokers must stay free for them.
_FREE_BROKERS = 2
_LIMITS = ("publishRateInMsgs", "publishRateInBytes", "dispatchRateInMsgs", "dispatchRateInBytes")


def cluster_change(difference: Difference, given: Collection[str] = ()) -> Change | LeftAlone:
    """Create a peer cluster that the namespaces' lists name; an existing one is never changed.

    :param given: fingerprints of the secrets that the plan is applied with.
    """
    if difference.side is not Side.MISSING:
        return LeftAlone.of(difference, "the target has another address for this cluster, and its namespaces use it")
    if fingerprints(difference.source) - set(given):
        return LeftAlone.of(difference, "its data holds secrets of the source's brokers: create it manually")
    call = with_body("PUT", cluster_path(difference.name), difference.source)
    return Change.of(difference, (call,), difference.source, "the lists of namespaces name this cluster")


def resource_group_change(difference: Difference) -> Change | LeftAlone:
    """Create the group, or set its limits."""
    call = with_body("PUT", group_path(difference.name), group_body(difference.target, difference.source))
    reason = "the target lacks this resource group" if difference.target is None else "its limits differ"
    return Change.of(difference, (call,), difference.source, reason)


def failure_domain_change(difference: Difference, own: str, brokers: Collection[str]) -> Change | LeftAlone:
    """Create or set the failure domain if the target has all its brokers; the source's brokers do not exist there.

    :param brokers: `host:port` of the target's brokers.
    """
    if unknown := sorted(set(difference.source["brokers"]) - set(brokers)):
        return LeftAlone.of(difference, f"names brokers that {own} does not have: {', '.join(unknown)}")
    call = with_body("POST", domain_path(own, difference.name), difference.source)
    reason = "the target lacks this failure domain" if difference.target is None else "its brokers differ"
    return Change.of(difference, (call,), difference.source, reason)


def isolation_change(difference: Difference, own: str, brokers: Collection[str]) -> Change | LeftAlone:
    """Create or set the policy if its patterns match brokers of the target and leave enough of them free.

    A policy that matches no broker makes its namespaces unavailable; one that matches all makes the others unavailable.
    """
    matching = [broker for broker in brokers if matches_host(difference.source.get("primary") or (), broker)]
    if not matching:
        return LeftAlone.of(difference, f"its primary brokers match none of {own}: its namespaces would be unavailable")
    free = len(brokers) - len(matching)
    if free < _FREE_BROKERS:
        return LeftAlone.of(
            difference, f"it would leave {free} of {len(brokers)} brokers of {own} for other namespaces"
        )
    # Loaded bundles stay on their brokers; the default would unload all of them at the same time.
    call = with_body("POST", isolation_path(own, difference.name), {**difference.source, "unload_scope": "none"})
    lacking = "the target lacks this policy" if difference.target is None else "the policy differs"
    reason = f"{lacking}; its primary brokers serve no other namespaces, loaded bundles are not unloaded"
    return Change.of(difference, (call,), difference.source, reason)


def matches_host(patterns: Iterable[str], broker: str) -> bool:
    """Whether a pattern matches the host of `broker` (`host:port`): the load manager compares the host only."""
    host = urlsplit(f"//{broker}").hostname or broker
    return any(_matches(pattern, host) for pattern in patterns)


def _matches(pattern: str, text: str) -> bool:
    try:
        return re.fullmatch(pattern, text) is not None
    except re.error:
        return False


def group_body(before: JsonObject | None, after: JsonObject) -> JsonObject:
    """All limits: the broker keeps those that are missing from a body, so -1 (no limit) is sent explicitly."""
    return {key: after.get(key, -1) for key in dict.fromkeys((*_LIMITS, *(before or {}), *after))}


def cluster_path(name: str) -> str:
    """The path of a cluster's data."""
    return f"/clusters/{quote(name, safe='')}"


def group_path(name: str) -> str:
    """The path of a resource group."""
    return f"/resourcegroups/{quote(name, safe='')}"


def domain_path(own: str, name: str) -> str:
    """The path of a failure domain of the cluster `own`."""
    return f"{cluster_path(own)}/failureDomains/{quote(name, safe='')}"


def isolation_path(own: str, name: str) -> str:
    """The path of a namespace isolation policy of the cluster `own`."""
    return f"{cluster_path(own)}/namespaceIsolationPolicies/{quote(name, safe='')}"
