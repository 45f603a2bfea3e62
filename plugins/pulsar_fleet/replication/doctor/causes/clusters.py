"""Causes between two clusters: addresses, TLS, credentials, an outage (pure).

A broker replaces the whole data by what a call has, so a call without the trusted authorities or the credentials takes
them away. What only a person knows, such as a secret, is a placeholder in the call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import quote, urlsplit

from pulsar_fleet.cluster.admin.call import Call, with_body
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.replication.doctor.causes.pair import ClusterPair, Explained, on
from pulsar_fleet.replication.doctor.facts import ClusterFacts, PeerData
from pulsar_fleet.replication.doctor.model import RemedyCall, placeholder


def find_cluster_causes(pair: ClusterPair) -> Iterator[Explained]:
    """The first cause that explains why no replicator of the pair connects, and wrong addresses in any case."""
    for cause in (_outage, _missing, _wrong, _unencrypted, _unreachable, _untrusted, _credentials):
        if explained := cause(pair):
            yield explained
            return


def _outage(pair: ClusterPair) -> Explained | None:
    if pair.target is None or not pair.target.outage or not pair.failing:
        return None
    return pair.diagnose("target-unreachable", pair.target.outage)


def _missing(pair: ClusterPair) -> Explained | None:
    if pair.source.peers is None or pair.peer is not None or not pair.lists:
        return None
    known = ", ".join(sorted(pair.source.peers))
    evidence = f"The clusters of {pair.source.name} are {known}."
    if calls := _registration(pair):
        return pair.diagnose("cluster-data-missing", evidence, calls=calls)
    return pair.diagnose("cluster-data-missing", evidence, calls=_shorter_lists(pair), automatic=False)


def _wrong(pair: ClusterPair) -> Explained | None:
    peer = pair.peer
    if peer is None or not pair.lists:
        return None
    wrong = {url: name for url, name in peer.leads_to.items() if name not in (None, pair.target_name)}
    if not wrong:
        return None
    leads = ", ".join(f"{url} leads to {name}" for url, name in sorted(wrong.items()))
    return pair.diagnose("cluster-data-wrong", f"{leads}.", calls=_registration(pair))


def _unencrypted(pair: ClusterPair) -> Explained | None:
    peer = pair.peer
    if peer is None or not pair.never_connects:
        return None
    if pair.source.setting("brokerClientTlsEnabled") == "true" and not (peer.broker_url_tls and peer.service_url_tls):
        evidence = (
            f"Brokers of {pair.source.name} connect with TLS (brokerClientTlsEnabled), and the data has no address "
            "with TLS."
        )
        return pair.diagnose("tls-required", evidence, calls=_registration(pair, with_tls=True))
    if pair.target is None or peer.tls:
        return None
    if evidence := _plain_address(pair.target, peer):
        return pair.diagnose("tls-required", evidence, calls=_registration(pair, with_tls=True))
    return None


def _plain_address(target: ClusterFacts, peer: PeerData) -> str:
    """Why the stored addresses without TLS cannot be used; empty if they can."""
    with_tls = {urlsplit(url).netloc for url in target.addresses if urlsplit(url).scheme in ("https", "pulsar+ssl")}
    for url in peer.addresses:
        if urlsplit(url).netloc in with_tls:
            return f"{url} is the port of {target.name} that speaks TLS."
    if target.setting("brokerServicePort") == "Optional.empty":
        return f"{target.name} has no port without TLS, and the data has {', '.join(peer.addresses)}."
    return ""


def _unreachable(pair: ClusterPair) -> Explained | None:
    peer = pair.peer
    if peer is None or not peer.unreachable or not pair.never_connects:
        return None
    reasons = ", ".join(f"{url}: {why}" for url, why in sorted(peer.unreachable.items()))
    return pair.diagnose("cluster-data-unreachable", f"{reasons}.", calls=_registration(pair))


def _untrusted(pair: ClusterPair) -> Explained | None:
    peer = pair.peer
    if peer is None or not peer.tls or peer.trusts or not pair.never_connects:
        return None
    evidence = "The data has addresses with TLS and no brokerClientTrustCertsFilePath."
    return pair.diagnose("tls-untrusted", evidence, calls=_registration(pair))


def _credentials(pair: ClusterPair) -> Explained | None:
    peer, target = pair.peer, pair.target
    if peer is None or target is None or not target.demands_credentials() or not pair.unlinked():
        return None
    if pair.never_connects and not peer.plugin and not pair.source.has_credentials():
        evidence = (
            f"{target.name} has authenticationEnabled=true; its data has no authenticationPlugin, and brokers of "
            f"{pair.source.name} have no brokerClientAuthenticationPlugin."
        )
        return pair.diagnose("credentials-missing", evidence, calls=_registration(pair))
    if peer.refusal:
        return pair.diagnose("credentials-refused", peer.refusal, calls=_registration(pair, refused=True))
    return None


def _registration(pair: ClusterPair, *, with_tls: bool = False, refused: bool = False) -> tuple[RemedyCall, ...]:
    """The call that stores the right data; none where the target is not examined."""
    if pair.target is None:
        return ()
    return on(pair.source.name, storing_peer(pair.source, pair.target, with_tls=with_tls, refused=refused))


def _shorter_lists(pair: ClusterPair) -> Iterator[RemedyCall]:
    """The calls that remove the target from the lists of namespaces, which keep their own cluster."""
    for namespace in pair.facts.of(pair.source.name):
        if pair.target_name in namespace.clusters:
            kept = {*namespace.clusters, pair.source.name} - {pair.target_name}
            path = f"/namespaces/{namespace.name.path}/replication"
            yield from on(pair.source.name, with_body("POST", path, sorted(kept)))


_PLAIN, _TLS = ("serviceUrl", "brokerServiceUrl"), ("serviceUrlTls", "brokerServiceUrlTls")
_USES_TLS, _TRUSTED = "brokerClientTlsEnabled", "brokerClientTrustCertsFilePath"
_PLUGIN, _PARAMETERS = "authenticationPlugin", "authenticationParameters"
_TRUST = (_TRUSTED, "brokerClientTlsTrustStore", "tlsAllowInsecureConnection")
_TOKENS = "org.apache.pulsar.client.impl.auth.AuthenticationToken"


def storing_peer(source: ClusterFacts, target: ClusterFacts, *, with_tls: bool = False, refused: bool = False) -> Call:
    """The call that stores the data of `target` on `source`, new or instead of what is there.

    :param with_tls: brokers of the source cannot connect without it.
    :param refused: the target does not accept the credentials that are stored now.
    """
    peer = (source.peers or {}).get(target.name)
    stored = dict(peer.data) if peer else {}
    document = _addressed(stored, target, with_tls=with_tls)
    if document.get(_USES_TLS) and not any(document.get(key) for key in _TRUST):
        document[_TRUSTED] = placeholder(
            f"path of a file on each broker of {source.name}: the authorities of {target.name}"
        )
    if refused or (target.demands_credentials() and not document.get(_PLUGIN) and not source.has_credentials()):
        document[_PLUGIN] = document.get(_PLUGIN) or placeholder(f"plugin, for a token {_TOKENS}")
        document[_PARAMETERS] = placeholder(f"credentials of a superuser of {target.name}, for a token token:…")
    return with_body("PUT" if peer is None else "POST", f"/clusters/{quote(target.name, safe='')}", document)


def _addressed(stored: Mapping[str, Json], target: ClusterFacts, *, with_tls: bool) -> JsonObject:
    """What is stored, with the addresses of the target instead; TLS that is in use stays in use."""
    kept = {key: value for key, value in stored.items() if key not in (*_PLAIN, *_TLS, _USES_TLS)}
    right = dict(target.data or {})
    if (with_tls or stored.get(_USES_TLS)) and not right.get(_USES_TLS):
        right = {key: value for key, value in right.items() if key not in _PLAIN}
        right |= {_USES_TLS: True, **_asked(_TLS, target)}
    elif not any(right.get(key) for key in (*_PLAIN, *_TLS)):
        right |= _asked(_PLAIN, target)
    return {**kept, **right}


def _asked(keys: tuple[str, str], target: ClusterFacts) -> JsonObject:
    admin, broker = keys
    tls = " with TLS" if keys == _TLS else ""
    return {
        admin: placeholder(f"address of the admin API of {target.name}{tls}"),
        broker: placeholder(f"address of the brokers of {target.name}{tls}"),
    }
