"""The identity of the two clusters, what they share, and their addresses of each other (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from pulsar_fleet.cluster.admin.call import bare, with_body
from pulsar_fleet.cluster.admin.probes import addresses
from pulsar_fleet.planning.changes.clusters import cluster_path
from pulsar_fleet.planning.changes.namespaces import tenant_path
from pulsar_fleet.planning.translation import configuration_store, known_after_plan, share_store
from pulsar_fleet.preflight.context import Measurements, Pair, blocker, call_text, setting, warning
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.snapshot.model import ClusterDataState, NamespaceState, Snapshot, TenantState

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_MOST_SECONDS_APART = 5.0


def cluster_names_differ(pair: Pair) -> Iterator[Finding]:
    """Two clusters with the same name cannot be distinguished in a cluster list."""
    if pair.source.cluster == pair.target.cluster:
        yield blocker(
            "same-cluster-name",
            pair.target.cluster,
            f"both clusters are called {pair.source.cluster}",
            "Either both connections lead to one cluster, or cluster lists cannot distinguish the two.",
            "use two connections to two clusters with different clusterName.",
            values=(pair.source.cluster, pair.target.cluster),
        )


SHARED_STORE = "shared-configuration-store"


def configuration_stores_differ(pair: Pair) -> Iterator[Finding]:
    """With one store, a change of a tenant or namespace applies to both, and its removal deletes data of both."""
    if not share_store(pair.source, pair.target):
        return
    ours, theirs = (configuration_store(snapshot) for snapshot in (pair.source, pair.target))
    yield blocker(
        SHARED_STORE,
        f"cluster {pair.target.cluster}",
        pair.values(", ".join(sorted(ours)) or "unknown", ", ".join(sorted(theirs)) or "unknown"),
        "Both clusters read tenants and namespaces from one store, so every call changes both, "
        "and a cluster list for one deletes the topics of the other.",
        "do not copy: the target already has everything; copy only to a cluster with its own configuration store.",
        call=call_text(pair.target.cluster, bare("GET", "/brokers/internal-configuration")),
        values=(sorted(ours), sorted(theirs)),
    )


def listed_clusters_are_known(pair: Pair) -> Iterator[Finding]:
    """The target's lists cannot name a cluster that the target lacks, so nothing is replicated to it."""
    names = known_after_plan(pair.source, pair.target) | {pair.source.cluster, pair.target.cluster}
    users: dict[str, list[str]] = {}
    for namespace in pair.source.namespaces:
        listed = {name for field in ("replication_clusters", "allowed_clusters") for name in _list(namespace, field)}
        for name in sorted(listed - names):
            users.setdefault(name, []).append(namespace.name)
    for name, namespaces in sorted(users.items()):
        yield warning(
            "cluster-unknown-to-target",
            f"cluster {name}",
            f"in the lists of {len(namespaces)} namespaces of {pair.source.cluster}, first {namespaces[0]}",
            f"{pair.target.cluster} has no cluster {name}, so its lists do not name it.",
            f"if {pair.target.cluster} is to replicate to it, create the cluster {name} there with the addresses and "
            f"credentials that {pair.target.cluster}'s brokers need, and take the snapshot again: the plan creates "
            "only clusters whose data has no secrets.",
            call=call_text(pair.source.cluster, bare("GET", cluster_path(name))),
        )


def tenants_allow_their_clusters(pair: Pair) -> Iterator[Finding]:
    """The broker refuses (403) a namespace with a cluster that its tenant does not allow."""
    target_clusters = {row.name: set(row.allowed_clusters) for row in pair.target.tenants}
    source_clusters = {row.name: set(row.allowed_clusters) for row in pair.translated.tenants}
    source_tenants = {row.name: row for row in pair.source.tenants}
    for namespace in pair.translated.namespaces:
        tenant = namespace.name.partition("/")[0]
        if tenant not in source_clusters and tenant not in target_clusters:
            continue
        allowed = source_clusters.get(tenant, set()) | target_clusters.get(tenant, set())
        missing = sorted(set(_list(namespace, "replication_clusters")) - allowed)
        if missing:
            yield blocker(
                "cluster-not-allowed",
                namespace.name,
                f"replicates to {', '.join(missing)}, its tenant allows {', '.join(sorted(allowed)) or 'none'}",
                f"{pair.target.cluster} refuses the namespace, and with it everything in it.",
                f"allow the tenant these clusters on {pair.source.cluster} and take the snapshot again. The call "
                "replaces the tenant's roles and clusters: read them again and repeat those that it has.",
                call=_allow(pair.source.cluster, source_tenants.get(tenant), missing),
                values=(missing, sorted(allowed)),
            )


def _allow(cluster: str, tenant: TenantState | None, missing: Sequence[str]) -> str:
    """The call replaces the document, so it needs the tenant's roles; none for a tenant that could not be read."""
    if tenant is None:
        return ""
    clusters = sorted({*tenant.allowed_clusters, *missing})
    body = {"adminRoles": list(tenant.admin_roles), "allowedClusters": clusters}
    path = tenant_path(tenant.name)
    return call_text(cluster, bare("GET", path), with_body("POST", path, body))


def peers_are_reachable(pair: Pair) -> Iterator[Finding]:
    """The addresses that brokers use for replication; only the brokers can test whether they reach them."""
    for own, _, measured in pair.sides():
        used = {name for row in own.namespaces for name in _list(row, "replication_clusters")} - {own.cluster}
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
            "No replicator starts, and only the broker's log reports it.",
            f"add the addresses of {peer.name} to its document on {own.cluster}; POST replaces the whole document, "
            "so keep "
            "its other fields and its credentials.",
            call=call_text(own.cluster, bare("GET", cluster_path(peer.name))),
        )
    local = [url for url in addresses(data) if urlsplit(url).hostname in _LOOPBACK]
    all_local = any(urlsplit(f"//{broker.address}").hostname in _LOOPBACK for broker in own.brokers)
    if local and own.brokers and not all_local:
        yield warning(
            "peer-address-local",
            f"cluster {peer.name}",
            f"{own.cluster} has {', '.join(local)} for it",
            "On each broker this address is the broker's own host, not the peer.",
            f"set addresses of {peer.name} that every broker of {own.cluster} can resolve; POST replaces the whole "
            "document, "
            "so keep its other fields and its credentials.",
            call=call_text(own.cluster, bare("GET", cluster_path(peer.name))),
        )


def _unreachable(own: Snapshot, peer: ClusterDataState, measured: Measurements) -> Iterator[Finding]:
    for url in addresses(peer.data):
        if url in measured.unreachable:
            yield warning(
                "peer-unreachable-from-here",
                f"cluster {peer.name}",
                f"{url}, which {own.cluster} has for it: {measured.unreachable[url]}",
                "If the brokers cannot reach it either, nothing is replicated, and the backlog grows.",
                f"open a connection to {url} from a broker of {own.cluster}; correct the address or the network.",
                call=call_text(own.cluster, bare("GET", cluster_path(peer.name))),
            )


def clocks_agree(pair: Pair) -> Iterator[Finding]:
    """Time to live, retention, token expiry and the order of policy changes depend on the brokers' clocks."""
    ours, theirs = pair.probes.source.clock, pair.probes.target.clock
    if ours is None or theirs is None:
        return
    apart = theirs.ahead - ours.ahead
    if abs(apart) - ours.uncertainty - theirs.uncertainty > _MOST_SECONDS_APART:
        yield warning(
            "clocks-differ",
            f"cluster {pair.target.cluster}",
            f"{apart:+.1f} s against {pair.source.cluster}, ± {ours.uncertainty + theirs.uncertainty:.1f} s",
            "Messages expire at different times, and the later of two policy changes may appear to be the earlier.",
            "synchronise the brokers' clocks (NTP) on both sides.",
            values=(ours.ahead, theirs.ahead),
        )


def _list(namespace: NamespaceState, field: str) -> tuple[str, ...]:
    return tuple(namespace.policies.get(field) or ())
