"""The data of a cluster as a remedy stores it: right addresses, and all else as it is stored now (pure).

A broker replaces the whole data by what a call has, so a call without the trusted authorities or the credentials takes
them away. What only a person knows, such as a secret, is a placeholder in the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from pulsar_fleet.cluster.admin.call import Call, with_body
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.replication.doctor.facts import ClusterFacts
from pulsar_fleet.replication.doctor.model import placeholder

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
