"""The brokers of a read-only namespace, and the isolation policy that gives them to it alone (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.planning.changes.clusters import matches_host

BROKERS = "pulsar-fleet.read-only-brokers"
"""The property of a read-only namespace that lists its own brokers, so that a lost isolation policy is noticed."""

_BROKER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]{1,5})?")


def parse_brokers(texts: Iterable[str]) -> tuple[str, ...]:
    """Brokers as `host` or `host:port`, the port of the web service.

    :raises InvalidRequest: a text is neither.
    """
    brokers = tuple(dict.fromkeys(text.strip() for text in texts))
    for broker in brokers:
        if not _BROKER.fullmatch(broker):
            raise InvalidRequest(f"{broker!r} in 'brokers' is not a broker: write its host, or host:port.")
    return brokers


def recorded_brokers(document: JsonObject | None) -> tuple[str, ...]:
    """The brokers that an earlier run gave to the namespace with these policies."""
    text = ((document or {}).get("properties") or {}).get(BROKERS) or ""
    return tuple(text.split(",")) if text else ()


def policy_name(namespace: NamespaceName) -> str:
    """`acme~orders-readers`: no tenant and no namespace has this character in its name."""
    return f"{namespace.tenant}~{namespace.name}"


def host_pattern(broker: str) -> str:
    r"""`127\\.0\\.0\\.3(:8080)?`: a load manager compares the host, and what brokers report compares `host:port`."""
    host, _, port = broker.partition(":")
    return f"{_literal(host)}(:{port or '[0-9]+'})?"


def isolation_document(namespace: NamespaceName, brokers: Sequence[str]) -> JsonObject:
    """The policy that gives brokers to a namespace alone; without any of them the namespace is not served."""
    return {
        "namespaces": [_literal(str(namespace))],
        "primary": [host_pattern(broker) for broker in brokers],
        "secondary": [],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "100"},
        },
    }


def is_own(namespace: NamespaceName, policy: JsonObject) -> bool:
    """Whether an isolation policy covers exactly this namespace, as this procedure writes it."""
    return list(policy.get("namespaces") or ()) == [_literal(str(namespace))]


def covers_namespace(policy: JsonObject, namespace: NamespaceName) -> bool:
    """Whether one of its patterns matches the namespace."""
    return any(_matches(pattern, str(namespace)) for pattern in policy.get("namespaces") or ())


def covered_brokers(policy: JsonObject, live: Iterable[str]) -> tuple[str, ...]:
    """The live brokers (`host:port`) that are primary or secondary brokers of a policy."""
    patterns = [*(policy.get("primary") or ()), *(policy.get("secondary") or ())]
    return tuple(broker for broker in live if matches_host(patterns, broker))


def brokers_of(brokers: Iterable[str], live: Iterable[str]) -> tuple[str, ...]:
    """The live brokers (`host:port`) that the policy of `brokers` covers: all on the hosts of those that are alive."""
    names, alive = list(brokers), list(live)
    absent = not_live(names, alive)
    patterns = [host_pattern(broker) for broker in names if broker not in absent]
    return tuple(broker for broker in alive if matches_host(patterns, broker))


def is_among(brokers: Iterable[str], owner: str) -> bool:
    """Whether a broker that owns a topic is on one of the hosts of `brokers`."""
    return matches_host([host_pattern(broker) for broker in brokers], owner)


def destinations(bundles: Iterable[str], chosen: Sequence[str]) -> dict[str, str]:
    """Bundle → the broker that takes it, in turns; empty without a broker."""
    return {bundle: chosen[number % len(chosen)] for number, bundle in enumerate(sorted(set(bundles))) if chosen}


def not_live(brokers: Iterable[str], live: Sequence[str]) -> tuple[str, ...]:
    """Those of `brokers` that no live broker is."""
    names = {*live, *(urlsplit(f"//{broker}").hostname for broker in live)}
    return tuple(broker for broker in brokers if broker not in names)


def free_brokers(live: Iterable[str], policies: Mapping[str, JsonObject]) -> tuple[str, ...]:
    """The brokers that serve namespaces without an isolation policy: those that no policy has as primary brokers."""
    patterns = [pattern for policy in policies.values() for pattern in policy.get("primary") or ()]
    return tuple(broker for broker in live if not matches_host(patterns, broker))


def _literal(text: str) -> str:
    return text.replace(".", "\\.")


def _matches(pattern: str, text: str) -> bool:
    try:
        return re.fullmatch(pattern, text) is not None
    except re.error:
        # Java reads more than Python does: nobody can say that it does not match.
        return True
