"""From a difference in what a cluster as a whole holds to the change that removes it, or the reason not to (pure)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from urllib.parse import quote, urlsplit

from pulsar_fleet.cluster.admin.call import Call, with_body
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.redaction import fingerprints
from pulsar_fleet.planning.changes.namespaces import ONLY_ON_TARGET, left_alone
from pulsar_fleet.planning.diff_entry import Difference, Side
from pulsar_fleet.planning.hazards.model import Hazard
from pulsar_fleet.planning.plan import Action, Change, LeftAlone

# A broker that a policy names as primary takes no other namespaces, so some must stay free for these.
_FREE_BROKERS = 2
_LIMITS = ("publishRateInMsgs", "publishRateInBytes", "dispatchRateInMsgs", "dispatchRateInBytes")


def cluster_change(found: Difference) -> Change | LeftAlone:
    """Make a peer known that the namespaces' lists name; what is known already is never changed."""
    if found.side is not Side.MISSING:
        return left_alone(found, "the target has another address of this cluster, and its own namespaces rely on it")
    if fingerprints(found.source):
        return left_alone(found, "its data holds secrets of the source's brokers: make it known to the target by hand")
    call = with_body("PUT", cluster_path(found.name), found.source)
    return _change(found, call, "the lists of namespaces name this cluster")


def resource_group_change(found: Difference) -> Change | LeftAlone:
    """Create the group, or set its limits."""
    if found.side is Side.EXTRA:
        return left_alone(found, ONLY_ON_TARGET)
    call = with_body("PUT", group_path(found.name), group_body(found.target, found.source))
    return _change(found, call, "the target lacks this resource group" if found.target is None else "its limits differ")


def failure_domain_change(found: Difference, own: str, brokers: Collection[str]) -> Change | LeftAlone:
    """Create the domain if it is about brokers of the target; those of the source mean nothing there.

    :param brokers: `host:port` of the target's brokers.
    """
    if found.side is Side.EXTRA:
        return left_alone(found, ONLY_ON_TARGET)
    if strangers := sorted(set(found.source["brokers"]) - set(brokers)):
        return left_alone(found, f"names brokers that {own} does not have: {', '.join(strangers)}")
    call = with_body("POST", domain_path(own, found.name), found.source)
    return _change(
        found, call, "the target lacks this failure domain" if found.target is None else "its brokers differ"
    )


def isolation_change(found: Difference, own: str, brokers: Collection[str]) -> Change | LeftAlone:
    """Create or set the policy if its patterns fit the target's brokers and leave enough of them free.

    A policy that matches nothing takes its namespaces out of service, and one that matches all takes out the others.
    """
    if found.side is Side.EXTRA:
        return left_alone(found, ONLY_ON_TARGET)
    taken = [broker for broker in brokers if matches_host(found.source.get("primary") or (), broker)]
    if not taken:
        return left_alone(found, f"its primary brokers match none of {own}: its namespaces would be out of service")
    if len(brokers) - len(taken) < _FREE_BROKERS:
        free = len(brokers) - len(taken)
        return left_alone(found, f"it would leave {free} of {len(brokers)} brokers of {own} for all other namespaces")
    # Bundles that are loaded stay where they are; the default would unload them all at once.
    call = with_body("POST", isolation_path(own, found.name), {**found.source, "unload_scope": "none"})
    lacking = "the target lacks this policy" if found.target is None else "the policy differs"
    return _change(found, call, f"{lacking}; its primary brokers take no other namespaces, loaded bundles stay")


def matches_host(patterns: Iterable[str], broker: str) -> bool:
    """Whether a pattern fits the host of `broker` (`host:port`): placement looks at the host alone."""
    host = urlsplit(f"//{broker}").hostname or broker
    return any(_matches(pattern, host) for pattern in patterns)


def _matches(pattern: str, text: str) -> bool:
    try:
        return re.fullmatch(pattern, text) is not None
    except re.error:
        return False


def group_body(before: JsonObject | None, after: JsonObject) -> JsonObject:
    """All limits: the broker keeps those that a body leaves out, so what is not limited is sent as -1."""
    return {key: after.get(key, -1) for key in dict.fromkeys((*_LIMITS, *(before or {}), *after))}


def cluster_path(name: str) -> str:
    """Where a cluster's data is kept."""
    return f"/clusters/{quote(name, safe='')}"


def group_path(name: str) -> str:
    """Where a resource group is kept."""
    return f"/resourcegroups/{quote(name, safe='')}"


def domain_path(own: str, name: str) -> str:
    """Where a failure domain of `own` is kept."""
    return f"{cluster_path(own)}/failureDomains/{quote(name, safe='')}"


def isolation_path(own: str, name: str) -> str:
    """Where a namespace isolation policy of `own` is kept."""
    return f"{cluster_path(own)}/namespaceIsolationPolicies/{quote(name, safe='')}"


def _change(found: Difference, call: Call, reason: str) -> Change:
    creates = found.target is None
    return Change(
        resource=found.resource,
        name=found.name,
        field="",
        action=Action.CREATE if creates else Action.SET,
        calls=(call,),
        before=found.target,
        after=found.source,
        hazard=Hazard.NONE if creates else Hazard.REVERSIBLE,
        reason=reason,
    )
