"""The calls by which a namespace would lose its bundles, let through once brokers have stored the bundles.

Brokers keep bundles, affinities and the flag of a migration in one document, which they write when they first load the
bundles. Before 3.0.15 and 4.0.8 a call that sets one of the others earlier writes it with bundles of its own: one for
an anti-affinity group; the default number for the flag, and for a bookie affinity, also when it is removed
(apache/pulsar#24762; measured with 3.0.7 and 4.0.7, not with 4.2.4 and 5.0.1). Reading policies, bundles or lists of
topics does not load them (measured), so a namespace that was just created loses its bundles. Asking for the bundle of a
topic, which need not exist, does; it creates nothing and gives the bundle to no broker. Once they are loaded, also
split ones are kept.

A broker that is asked so about a missing namespace remembers a single bundle, also after its creation (measured with
4.0.7 and 5.0.1), and then does not store those of the namespace. So the namespace is read first.
"""

from __future__ import annotations

import re
from itertools import pairwise

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.admin.http import BrokerHttp
from pulsar_fleet.cluster.errors import NotFound, PreconditionFailed
from pulsar_fleet.cluster.polling import is_kept

_LOCAL = re.compile(r"^(/namespaces/([^/]+/[^/]+))/(?:antiAffinity|persistence/bookieAffinity|migration)$")
_ANY_TOPIC = "any"
_WHOLE = ["0x00000000", "0xffffffff"]


async def store_bundles(http: BrokerHttp, admin: str, call: Call) -> None:
    """Make brokers store the bundles of the namespace, if the call needs that; any other call costs nothing.

    :param admin: the path before that of the call.
    :raises PreconditionFailed: a broker has loaded other bundles than the namespace has; nothing may be sent.
    """
    match = _LOCAL.match(call.path) if call.method != "GET" else None
    if match is None:
        return
    path, namespace = match.groups()
    loaded, boundaries = "", _WHOLE

    async def is_loaded() -> bool:
        nonlocal loaded, boundaries
        try:
            stored = http.document(await http.call("GET", f"{admin}{path}/bundles")) or {}
        except NotFound:
            return True  # Nothing can be lost.
        boundaries = stored.get("boundaries") or _WHOLE
        answer = await http.call("GET", f"/lookup/v2/topic/persistent/{namespace}/{_ANY_TOPIC}/bundle")
        loaded = answer.text.strip().strip('"')
        return loaded in {"_".join(pair) for pair in pairwise(boundaries)}

    # While bundles are split, another broker may answer with those before.
    if not await is_kept(is_loaded):
        name = http.connection.name
        raise PreconditionFailed(
            f"{call.text()} on {name}: the namespace has {len(boundaries) - 1} bundles, and a broker has loaded "
            f"{loaded}, which is none of them: the call could replace them; nothing was sent. Restart the brokers, "
            "where no migrated namespace drains, and call again.",
            cluster=name,
        )
