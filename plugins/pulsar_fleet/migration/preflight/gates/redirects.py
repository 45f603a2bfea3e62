"""The redirect of blue's clients: complete, reachable, green, and no other redirect stored (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pulsar_fleet.cluster.text import listed
from pulsar_fleet.migration.cutover.redirect import ADDRESS_SCHEMES
from pulsar_fleet.migration.model import Strategy
from pulsar_fleet.migration.preflight.gates.catalogue import Owner, blocks
from pulsar_fleet.migration.preflight.gates.flags import flagged_elsewhere, moved_to_green
from pulsar_fleet.migration.preflight.view import AddressProbe, ClusterFacts, View
from pulsar_fleet.preflight.findings import Finding

_NOT_SUPPORTED = blocks(
    "redirect-not-supported",
    Owner.BLUE,
    "Its brokers cannot redirect the clients of a single namespace to {green}.",
    never_waived="the cut-over would fail: the brokers do not have the call that flags a namespace.",
)
_UNREACHABLE = blocks(
    "redirect-unreachable",
    Owner.RUN,
    "{blue}'s clients would be redirected to an address that does not answer: they hang, their topics are terminated.",
)
_NOT_GREEN = blocks(
    "redirect-not-green",
    Owner.RUN,
    "{blue}'s clients would be redirected to another cluster and write there.",
    never_waived="what they write there is not on {green}.",
)
_NOT_VERIFIED = blocks(
    "redirect-not-verified",
    Owner.RUN,
    "What answers there may not be {green}: {blue}'s clients would be redirected to it.",
)
_KIND_MISSING = blocks(
    "redirect-kind-missing",
    Owner.GREEN,
    "A client of {blue} that uses this kind of connection finds none on {green}: it hangs, and its topic is "
    "terminated.",
)
_TO_ANOTHER = blocks(
    "redirect-to-another-cluster",
    Owner.RUN,
    "A cluster has one redirect address: this run would redirect an earlier migration's clients.",
    never_waived="clients of the earlier migration would write to the wrong cluster.",
)
_OTHER_ADDRESSES = blocks(
    "redirect-to-other-addresses",
    Owner.RUN,
    "A cluster has one redirect: this run would send an earlier migration's clients to other addresses of {green}.",
)
_LOST = blocks(
    "redirect-lost",
    Owner.BLUE,
    "Applications of namespaces that were moved to {green}, and that start through {blue}, do not get to {green}.",
)
_LEFT_ON_GREEN = blocks(
    "redirect-left-on-green",
    Owner.GREEN,
    "A flag on {green} would redirect the clients again, or back and forth until they time out.",
)
_UNKNOWN = blocks(
    "redirect-unknown",
    Owner.RUN,
    "Whether an earlier migration's redirect is stored is not known; storing another would redirect its clients.",
)
_CREDENTIALS = blocks(
    "credentials-refused-by-green",
    Owner.GREEN,
    "Clients keep their credentials on a redirect: clients that {blue} accepts and {green} refuses hang.",
)
_CREDENTIALS_UNKNOWN = blocks(
    "credentials-unknown",
    Owner.GREEN,
    "Clients keep credentials and trust store on a redirect: if {green} refuses them, clients hang.",
)
_TRUST = blocks(
    "certificate-not-trusted",
    Owner.GREEN,
    "Clients keep their trust store on a redirect: clients that trust only {blue}'s authority cannot connect.",
)


_EXTRAS = "service_url, or client_urls for addresses of the applications"


def blue_redirects_single_namespaces(view: View) -> Iterator[Finding]:
    """Pulsar 3.0 flags a whole cluster only: the call for one namespace does not exist there (observed: 405)."""
    for facts in view.redirected if view.blue.unflagged and not view.flags_cluster else ():
        yield _NOT_SUPPORTED.finding(
            str(facts.namespace),
            f"brokers of Pulsar {view.blue.unflagged} on {view.blue.name}",
            f"move the namespace with {Strategy.REPOINT}, or every namespace with {Strategy.WHOLE_CLUSTER}.",
        )


def redirect_is_complete_and_green(view: View) -> Iterator[Finding]:
    """Every kind of client of blue must find green; checks which broker answered at each address."""
    if not view.redirected:
        return
    served = view.green.offers()
    for probe in view.survey.redirect_probe.probes:
        kind = ADDRESS_SCHEMES[probe.key]
        if served and kind not in served:
            if kind in view.blue.offers() and kind.startswith("pulsar"):
                yield _kind_missing(view, probe, kind)
        elif not probe.placeholder or kind in served:
            yield from _check_probe(view, probe)


def _kind_missing(view: View, probe: AddressProbe, kind: str) -> Finding:
    return _KIND_MISSING.finding(
        f"cluster {view.green.name}",
        f"{view.blue.name} offers {kind}://, {view.green.name} does not; {probe.url} would be a placeholder",
        f"open {kind}:// on {view.green.name}'s brokers, or make sure that no client of {{blue}} uses it and waive "
        "this.",
    )


def _check_probe(view: View, probe: AddressProbe) -> Iterator[Finding]:
    where, green = f"{probe.key} {probe.url}", view.green.name
    # The addresses that green's brokers offer are each broker's own.
    kind = ADDRESS_SCHEMES[probe.key]
    add = f"add the {kind}:// address that leads to all brokers of {green} to client_urls of its connection"
    if probe.error:
        yield _UNREACHABLE.finding(
            where,
            f"no connection from here: {probe.error}",
            f"{add}: {probe.url} is a guess."
            if probe.placeholder
            else f"correct the address in the connection to {green} ({_EXTRAS}), or open the network to it; waive this "
            "only if every application reaches it.",
        )
    elif not probe.answered:
        yield _NOT_VERIFIED.finding(
            where,
            probe.detail or "it did not name its broker",
            f"{add}."
            if probe.placeholder
            else f"run again; if it stays, set an address in the connection that leads to {green}'s own brokers "
            f"({_EXTRAS}).",
        )
    elif probe.answered not in view.survey.redirect_probe.advertised:
        brokers = ", ".join(sorted(view.survey.redirect_probe.advertised)) or "none"
        yield _NOT_GREEN.finding(
            where,
            f"{probe.answered} answers there, and {green}'s brokers are {brokers}",
            f"correct the address in the connection to {green}: it leads to another cluster.",
        )


def no_other_redirect_is_stored(view: View) -> Iterator[Finding]:
    """A stored redirect takes effect when a flag is set; the redirect of an earlier wave to the same green is right."""
    for cluster in (view.blue, view.green):
        if cluster.redirect is None:
            yield _UNKNOWN.finding(
                f"cluster {cluster.name}",
                "its stored redirect could not be read",
                f"read GET /admin/v2/clusters/{cluster.name}/migrate with a superuser's token.",
            )
    if view.redirected:
        yield from _stored_on_blue(view)
    # A redirect to blue belongs to a failback, or to the migration that this run reverts: other namespaces need it.
    if addresses := view.green.broker_addresses - view.survey.home:
        yield _left_on_green(view, ", ".join(sorted(addresses)))


def _stored_on_blue(view: View) -> Iterator[Finding]:
    probe = view.survey.redirect_probe
    stored, moved = view.blue.broker_addresses, moved_to_green(view)
    differing = stored - set(probe.document.values())
    answered = {entry.url: entry.answered for entry in view.survey.stored_probes if entry.answered}
    if differing and answered and set(answered.values()) <= probe.advertised:
        # Where none of these answers, as after a broker was replaced, this run stores addresses that do.
        if in_use := differing & set(answered):
            yield _other_addresses(view, ", ".join(sorted(in_use)))
    elif moved and (differing or not stored) and not any(flagged_elsewhere(view)):
        yield _lost(view, [namespace.name for namespace in moved], ", ".join(sorted(stored)) or "no address")
    elif differing:
        yield _to_another(view, ", ".join(sorted(differing)))


def _other_addresses(view: View, stored: str) -> Finding:
    return _OTHER_ADDRESSES.finding(
        f"cluster {view.blue.name}",
        f"its clients are redirected to {stored}, which lead to {view.green.name} too; this run would store "
        f"{view.survey.redirect_probe.document.get('brokerServiceUrl')}",
        f"set the stored addresses in the connection to {view.green.name}; waive this if every client of "
        f"{view.blue.name} reaches both.",
    )


def _lost(view: View, moved: list[str], stored: str) -> Finding:
    """Store the redirect again, if its addresses were verified and no flag would become effective by it."""
    probe, name = view.survey.redirect_probe, view.blue.name
    verified = all(entry.placeholder or entry.answered in probe.advertised for entry in probe.probes)
    wakes = any((facts.blue or {}).get("migrated") for facts in view.moving)
    may_store = verified and not wakes and not (view.blue.redirect or {}).get("migrated")
    return _LOST.finding(
        f"cluster {name}",
        f"{name} redirects to {stored}, and {listed(moved)} were moved to {view.green.name}",
        f"store the redirect to {view.green.name} again, and leave the flags: their topics on {name} are terminated."
        if may_store
        else f"leave the flags. Do first what the other findings about flags and addresses say, then store the "
        f"redirect to {view.green.name} again.",
        call=f"{name}: POST /admin/v2/clusters/{name}/migrate?migrated=false {json.dumps(probe.document)}"
        if may_store
        else "",
    )


def _to_another(view: View, stored: str) -> Finding:
    name = view.blue.name
    in_use = view.survey.flagged != () or any((facts.blue or {}).get("migrated") for facts in view.moving)
    return _TO_ANOTHER.finding(
        f"cluster {name}",
        f"its clients are redirected to {stored}, not to {view.survey.redirect_probe.document.get('brokerServiceUrl')}",
        "set `green` to the connection of the cluster with these addresses. Do not delete the redirect: flagged "
        f"namespaces of {name} need it."
        if in_use
        else f"no namespace of {name} is flagged, so no client uses this redirect: delete it, or set the connection of "
        "the cluster with these addresses as `green`.",
        call="" if in_use else _deletion(view.blue),
    )


def _left_on_green(view: View, stored: str) -> Finding:
    flagged, name = view.survey.flagged_on_green, view.green.name
    unused = flagged == () and not (view.green.redirect or {}).get("migrated")
    return _LEFT_ON_GREEN.finding(
        f"cluster {name}",
        f"its clients would be redirected to {stored}",
        f"delete it: no namespace of {name} is flagged, so no client uses it."
        if unused
        else f"do not delete it: clients of {listed(flagged) if flagged else 'flagged namespaces'} need it. Choose "
        "another cluster as `green`, or let the namespaces come back first (fail_back_namespaces).",
        call=_deletion(view.green) if unused else "",
    )


def _deletion(cluster: ClusterFacts) -> str:
    """Without a body the call deletes the stored addresses (observed)."""
    return f"{cluster.name}: POST /admin/v2/clusters/{cluster.name}/migrate?migrated=false"


def clients_are_accepted(view: View) -> Iterator[Finding]:
    """A redirect has no credentials: clients connect to green with the credentials that they use for blue."""
    if not view.redirected:
        return
    redirect_probe = view.survey.redirect_probe
    if redirect_probe.credentials:
        yield _CREDENTIALS.finding(
            f"cluster {view.green.name}",
            f"it refuses the credentials of the connection to {view.blue.name}: {redirect_probe.credentials}",
            f"let {view.green.name}'s brokers accept the tokens or certificates that {view.blue.name} accepts.",
        )
    if redirect_probe.unanswered:
        yield _CREDENTIALS_UNKNOWN.finding(
            f"cluster {view.green.name}",
            f"whether it accepts the credentials of the connection to {view.blue.name} is not known: "
            f"{redirect_probe.unanswered}",
            f"run again; if it stays, find out why {view.green.name}'s broker does not answer there.",
        )
    if redirect_probe.trust:
        yield _TRUST.finding(
            f"cluster {view.green.name}",
            f"with the trust store of the connection to {view.blue.name}: {redirect_probe.trust}",
            f"give {view.green.name} a certificate of the same authority, or the clients both authorities.",
        )
