"""Which two clusters these are, what they share, and how they know each other (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote, urlsplit

from pulsar_fleet.cluster.admin.call import bare, with_body
from pulsar_fleet.cluster.admin.reachability import addresses
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.policies.lookup import KEYED_BY_CLUSTER
from pulsar_fleet.preflight.context import Measured, Pair, blocker, call_text, setting, warning
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.snapshot.model import ClusterDataState, NamespaceState, Snapshot

_STORE_KEYS = (
    "configurationMetadataStoreUrl",
    "configurationStoreServers",
    "globalZookeeperServers",
    "metadataStoreUrl",
    "zookeeperServers",
)
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_MOST_SECONDS_APART = 5.0


def clusters_are_two(pair: Pair) -> Iterator[Finding]:
    """Under one name two clusters cannot be told apart in any list."""
    if pair.source.cluster == pair.target.cluster:
        yield blocker(
            "same-cluster-name",
            pair.target.cluster,
            f"both clusters are called {pair.source.cluster}",
            "Either both connections lead to one cluster, or cluster lists could not tell the two apart.",
            "use two connections to two clusters with different clusterName.",
            values=(pair.source.cluster, pair.target.cluster),
        )


def configuration_stores_are_two(pair: Pair) -> Iterator[Finding]:
    """With one store a change to a tenant or namespace is made on both, and one's removal deletes the other's data.

    One address alone proves nothing (each cluster may call its own server `zookeeper`): in a shared store both know the
    same clusters, and what they hold is the same to the letter.
    """
    ours, theirs = (configuration_store(snapshot) for snapshot in (pair.source, pair.target))
    if not _may_share(pair.source, pair.target) or not (ours & theirs or _keyed_for_both(pair)):
        return
    yield blocker(
        "shared-configuration-store",
        f"cluster {pair.target.cluster}",
        pair.values(", ".join(sorted(ours)) or "unknown", ", ".join(sorted(theirs)) or "unknown"),
        "Both clusters read tenants and namespaces from one store, so every call would change both, "
        "and a list for one would delete the topics of the other.",
        "do not copy: it is all there already; copy only to a cluster with a configuration store of its own.",
        call=call_text(pair.target.cluster, bare("GET", "/brokers/internal-configuration")),
        values=(sorted(ours), sorted(theirs)),
    )


def configuration_store(snapshot: Snapshot) -> frozenset[str]:
    """The servers of the store for tenants and namespaces, empty for one inside of a single process."""
    for key in _STORE_KEYS:
        url = setting(snapshot, key)
        if url:
            inside = url.startswith(("rocksdb:", "memory:"))
            return frozenset() if inside else _servers(url)
    return frozenset()


def _servers(url: str) -> frozenset[str]:
    """`zk:one:2181,two:2181/chroot` → each server with the folder that all of them serve."""
    hosts, _, folder = url.removeprefix("zk:").rpartition("://")[2].partition("/")
    return frozenset(f"{host.strip()}/{folder}" for host in hosts.split(",") if host)


def _may_share(source: Snapshot, target: Snapshot) -> bool:
    names = {source.cluster, target.cluster}
    if set(source.known_clusters) != set(target.known_clusters) or not names <= set(source.known_clusters):
        return False
    tenants = {one.name: one for one in target.tenants}
    namespaces = {one.name: _stored(one.policies) for one in target.namespaces}
    same_tenants = all(tenants.get(one.name) == one for one in source.tenants)
    return (
        bool(source.tenants)
        and same_tenants
        and all(namespaces.get(one.name) == _stored(one.policies) for one in source.namespaces)
    )


def _stored(document: JsonObject) -> JsonObject:
    """What of a namespace lies in the configuration store; bundles, affinity and the flag are each cluster's own."""
    own = ("bundles", "migrated", "bookie_affinity", "anti_affinity")
    return {field: value for field, value in document.items() if field not in own}


def _keyed_for_both(pair: Pair) -> bool:
    """A rate that the target holds under the source's name: only a shared store keeps both side by side."""
    return any(
        pair.source.cluster in (one.policies.get(field) or {}) and pair.target.cluster in one.policies[field]
        for one in pair.target.namespaces
        for field in KEYED_BY_CLUSTER
    )


def listed_clusters_are_known(pair: Pair) -> Iterator[Finding]:
    """A cluster that the target does not know cannot be in its lists, so nothing would be replicated there."""
    known = set(pair.target.known_clusters) | {pair.source.cluster, pair.target.cluster}
    users: dict[str, list[str]] = {}
    for namespace in pair.source.namespaces:
        listed = {name for field in ("replication_clusters", "allowed_clusters") for name in _list(namespace, field)}
        for name in sorted(listed - known):
            users.setdefault(name, []).append(namespace.name)
    for name, namespaces in sorted(users.items()):
        yield warning(
            "cluster-unknown-to-target",
            f"cluster {name}",
            f"in the lists of {len(namespaces)} namespaces of {pair.source.cluster}, first {namespaces[0]}",
            f"{pair.target.cluster} does not know {name}, so its lists are made without it.",
            f"make {name} known to {pair.target.cluster} with its addresses and take the snapshot again.",
            call=call_text(
                pair.target.cluster, with_body("PUT", f"/clusters/{quote(name, safe='')}", {"serviceUrl": "…"})
            ),
        )


def tenants_allow_their_clusters(pair: Pair) -> Iterator[Finding]:
    """The broker refuses (403) a namespace with a cluster that its tenant may not use."""
    held = {one.name: set(one.allowed_clusters) for one in pair.target.tenants}
    wanted = {one.name: set(one.allowed_clusters) for one in pair.wanted.tenants}
    for namespace in pair.wanted.namespaces:
        tenant = namespace.name.partition("/")[0]
        if tenant not in wanted and tenant not in held:
            continue
        allowed = wanted.get(tenant, set()) | held.get(tenant, set())
        missing = sorted(set(_list(namespace, "replication_clusters")) - allowed)
        if missing:
            yield blocker(
                "cluster-not-allowed",
                namespace.name,
                f"replicates to {', '.join(missing)}, its tenant allows {', '.join(sorted(allowed)) or 'none'}",
                f"{pair.target.cluster} refuses the namespace, and with it everything in it.",
                f"allow the tenant these clusters on {pair.source.cluster} and take the snapshot again.",
                call=call_text(
                    pair.source.cluster,
                    with_body(
                        "POST", f"/tenants/{quote(tenant, safe='')}", {"allowedClusters": sorted(allowed | {*missing})}
                    ),
                ),
                values=(missing, sorted(allowed)),
            )


def peers_can_be_reached(pair: Pair) -> Iterator[Finding]:
    """Addresses that brokers would use for replication; whether they really reach them is only seen when they do."""
    for own, _, measured in pair.sides():
        used = {name for one in own.namespaces for name in _list(one, "replication_clusters")} - {own.cluster}
        for peer in own.clusters:
            if peer.name in used:
                yield from _data_problems(own, peer)
                yield from _unreachable(own, peer, measured)


def _data_problems(own: Snapshot, peer: ClusterDataState) -> Iterator[Finding]:
    data = peer.data
    tls = setting(own, "brokerClientTlsEnabled") == "true" or bool(data.get("brokerClientTlsEnabled"))
    needed = ("serviceUrlTls", "brokerServiceUrlTls") if tls else ("serviceUrl", "brokerServiceUrl")
    missing = [key for key in needed if not data.get(key)]
    if missing:
        yield blocker(
            "peer-address-missing",
            f"cluster {peer.name}",
            f"{own.cluster} has no {', '.join(missing)} for it" + (", and its brokers use TLS" if tls else ""),
            "No replicator starts, and nothing says so but the broker's log.",
            f"add the addresses of {peer.name} on {own.cluster}; the call replaces the whole document.",
            call=call_text(own.cluster, with_body("POST", f"/clusters/{quote(peer.name, safe='')}", dict(data))),
        )
    local = [url for url in addresses(data) if urlsplit(url).hostname in _LOOPBACK]
    at_home = any(urlsplit(f"//{one.address}").hostname in _LOOPBACK for one in own.brokers)
    if local and own.brokers and not at_home:
        yield warning(
            "peer-address-local",
            f"cluster {peer.name}",
            f"{own.cluster} has {', '.join(local)} for it",
            "On each broker this address is the broker's own machine, not the peer.",
            f"write addresses of {peer.name} that every broker of {own.cluster} can resolve.",
            call=call_text(own.cluster, with_body("POST", f"/clusters/{quote(peer.name, safe='')}", dict(data))),
        )


def _unreachable(own: Snapshot, peer: ClusterDataState, measured: Measured) -> Iterator[Finding]:
    for url in addresses(peer.data):
        if url in measured.unreachable:
            yield warning(
                "peer-unreachable-from-here",
                f"cluster {peer.name}",
                f"{url}, which {own.cluster} has for it: {measured.unreachable[url]}",
                "If the brokers cannot reach it either, nothing is replicated, and the backlog grows.",
                f"open a connection to {url} from a broker of {own.cluster}; correct the address or the network.",
                call=call_text(own.cluster, bare("GET", f"/clusters/{quote(peer.name, safe='')}")),
            )


def clocks_agree(pair: Pair) -> Iterator[Finding]:
    """Time to live, retention, token expiry and the order of policy changes all go by the brokers' clocks."""
    ours, theirs = pair.probes.source.clock, pair.probes.target.clock
    if ours is None or theirs is None:
        return
    apart = theirs.ahead - ours.ahead
    if abs(apart) - ours.uncertainty - theirs.uncertainty > _MOST_SECONDS_APART:
        yield warning(
            "clocks-differ",
            f"cluster {pair.target.cluster}",
            f"{apart:+.1f} s against {pair.source.cluster}, ± {ours.uncertainty + theirs.uncertainty:.1f} s",
            "Messages expire at another time than on the source, and of two changes the later one may look earlier.",
            "synchronise the brokers' clocks (NTP) on both sides.",
            values=(ours.ahead, theirs.ahead),
        )


def _list(namespace: NamespaceState, field: str) -> tuple[str, ...]:
    return tuple(namespace.policies.get(field) or ())
