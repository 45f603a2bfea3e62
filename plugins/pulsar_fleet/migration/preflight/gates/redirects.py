"""Redirects and flags: that of blue's clients is complete and leads to green, and no other one is stored (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pulsar_fleet.cluster.admin.call import with_body
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.text import listed
from pulsar_fleet.migration.cutover.redirect import ADDRESS_SCHEMES, has_addresses
from pulsar_fleet.migration.facts import FlaggedNamespace
from pulsar_fleet.migration.model import Strategy
from pulsar_fleet.migration.preflight.gates.catalogue import Owner, blocks
from pulsar_fleet.migration.preflight.view import AddressProbe, ClusterFacts, View
from pulsar_fleet.planning.translation import LISTS, has_one_store
from pulsar_fleet.preflight.context import call_text
from pulsar_fleet.preflight.findings import Finding

_BLUE_FLAGGED = blocks(
    "blue-is-migrated",
    Owner.BLUE,
    "The whole cluster is flagged: every topic on it is terminated as soon as a redirect is stored.",
    never_waived="topics of namespaces that {green} does not have would be terminated.",
)
_GREEN_FLAGGED = blocks(
    "green-is-migrated",
    Owner.GREEN,
    "{green} redirects its own clients: they are redirected again, or back and forth until they time out.",
    never_waived="no client could work on either cluster.",
)
_ELSEWHERE = blocks(
    "flag-left-elsewhere",
    Owner.BLUE,
    "Storing a redirect terminates the topics of every flagged namespace within a second, and redirects their clients.",
    never_waived="topics that {green} does not have would be terminated, or clients redirected to the wrong cluster.",
)
_FLAGS_UNKNOWN = blocks(
    "flags-unknown",
    Owner.RUN,
    "Storing a redirect terminates the topics of every flagged namespace; which are flagged is not known.",
)
_BOTH = blocks(
    "both-sides-flagged",
    Owner.RUN,
    "Clients are redirected back and forth between the clusters until they time out.",
    never_waived="no client could work on either cluster.",
)
_MISSING = blocks(
    "namespace-missing",
    Owner.RUN,
    "The broker accepts the flag for it; topics of a namespace created later would be terminated from the start.",
    never_waived="nothing exists to move.",
)
_NOT_IN_LIST = blocks(
    "green-not-in-list",
    Owner.GREEN,
    "{green} deletes the topics of a namespace whose cluster list does not name {green}.",
    never_waived="the topics on {green} are deleted with the messages written to them.",
)
_REPLICATES = blocks(
    "replicates-in-shared-store",
    Owner.RUN,
    "Both clusters read one list: {green} would replicate to {blue}, which redirects it to {green}, without end.",
    never_waived="messages are delivered twice and more often, until somebody ends it.",
)


def no_cluster_is_flagged(view: View) -> Iterator[Finding]:
    """The flag of a cluster applies to all its namespaces; brokers set it only together with a redirect (observed)."""
    for gate, cluster in ((_BLUE_FLAGGED, view.blue), (_GREEN_FLAGGED, view.green)):
        if (cluster.redirect or {}).get("migrated"):
            stored = ", ".join(sorted(cluster.redirect_addresses.values())) or "no address"
            yield gate.finding(
                f"cluster {cluster.name}",
                f"migrated = true on {cluster.name}, redirect to {stored}",
                f"choose another cluster: the clients of {cluster.name} are redirected, and its loaded topics are "
                "terminated. Without the flag these clients would hang.",
            )


def moved_to_green(view: View) -> tuple[FlaggedNamespace, ...]:
    """Other namespaces that were moved to green: a redirect to green is right for them, and their flags must stay."""
    flagged = view.survey.flagged or ()
    return tuple(row for row in flagged if row.was_moved and row.is_on_green and not row.lacking)


def flagged_elsewhere(view: View) -> Iterator[FlaggedNamespace]:
    """Other flagged namespaces, for which a redirect to green is wrong, or is not known to be right."""
    moved = moved_to_green(view)
    return (namespace for namespace in view.survey.flagged or () if namespace not in moved)


def no_other_namespace_is_flagged(view: View) -> Iterator[Finding]:
    """Flags that were set without a redirect take effect when a redirect is stored (observed: after 0.8 s).

    The flag of a namespace that was moved must stay: without it a new producer through blue times out, and a new
    consumer reads nothing from a terminated topic (observed).
    """
    if not view.redirected or has_addresses(view.blue.redirect, view.survey.redirect_probe.document):
        return
    if view.survey.flagged is None:
        yield _FLAGS_UNKNOWN.finding(
            f"cluster {view.blue.name}",
            "the namespaces of the cluster could not all be read",
            "give the connection a superuser's token, or run again.",
        )
    blue, green = view.blue.name, view.green.name
    for namespace in flagged_elsewhere(view):
        evidence, remedy, is_cleared = _state_of(view, namespace)
        path = f"/admin/v2/namespaces/{NamespaceName.parse(namespace.name).path}/migration"
        yield _ELSEWHERE.finding(
            namespace.name,
            f"migrated = true on {blue}, and it is not part of this run; {evidence}",
            remedy.format(blue=blue, green=green),
            call=f"{blue}: POST {path} false" if is_cleared else "",
        )


def _state_of(view: View, namespace: FlaggedNamespace) -> tuple[str, str, bool]:
    """Evidence, remedy, and whether its flag may be cleared: only where no client was ever redirected by it."""
    stored = ", ".join(sorted(set(view.blue.redirect_addresses.values())))
    if namespace.was_moved:
        by = f"run {namespace.moved_by} moved it" if namespace.moved_by else "its topics are terminated"
        where = f", and {view.green.name} lacks {listed(namespace.lacking)}" if namespace.lacking else ""
        return f"{by}{where}", _KEEP_MOVED, False
    if namespace.terminated is None:
        return "its topics could not be read", _KEEP_UNREAD, False
    if view.blue.has_redirect:
        return f"{view.blue.name} redirects its clients to {stored or 'addresses that are not known'}", _KEEP_SET, False
    return (
        f"no topic of it is terminated, and {view.blue.name} has no redirect: the flag has no effect yet",
        _CLEAR,
        True,
    )


_CLEAR = "clear it on {blue}, or move the namespace with this run."
_KEEP_MOVED = (
    "leave its flag: its clients were redirected, and without the flag they would hang on terminated topics. Set "
    "`green` to the cluster to which it was moved; if that is {green}, store the redirect to {green} on {blue} again."
)
_KEEP_UNREAD = "leave its flag until its topics can be read, then run again: without the flag its clients may hang."
_KEEP_SET = (
    "leave its flag until you know who set it: its clients may be on that cluster already. If nothing of the namespace "
    "is there, clear the flag, or move the namespace with this run."
)


def no_namespace_is_flagged_twice(view: View) -> Iterator[Finding]:
    """A flag on both clusters; the checks that all procedures share report a single flag.

    The cluster with terminated topics, or else the only one with a redirect, sends its clients to the other one.
    """
    sides = (view.green, view.blue)
    for facts in view.moving:
        if (facts.blue or {}).get("migrated") and (facts.green or {}).get("migrated"):
            ended = [side.name for side in sides if side.has_terminated(facts.namespace)]
            unread = any(str(facts.namespace) in note.resource for side in sides for note in side.unread)
            redirecting = [side.name for side in sides if side.has_redirect]
            sending = ended or redirecting
            cleared = [] if unread or len(sending) > 1 else [side.name for side in sides if side.name not in sending]
            yield _BOTH.finding(
                str(facts.namespace),
                f"migrated = true on both clusters; terminated topics: {' and '.join(ended) or 'none'}; redirects: "
                f"{' and '.join(redirecting) or 'none'}",
                f"clear the flag on {', then on '.join(cleared)}, and on no other cluster."
                if cleared
                else "leave both flags and take the namespace out of the run. Find out with verify_clusters which "
                "cluster its clients use; the flag of the other one must stay.",
                call="; ".join(
                    f"{name}: POST /admin/v2/namespaces/{facts.namespace.path}/migration false" for name in cleared
                ),
            )


def namespaces_exist(view: View) -> Iterator[Finding]:
    """The broker accepts the flag of a namespace that does not exist (observed: 204)."""
    for facts in view.survey.namespaces:
        if facts.blue is None:
            yield _MISSING.finding(
                str(facts.namespace), f"not on {view.blue.name}", "correct 'namespaces' (--namespaces)."
            )


def green_serves_the_namespaces(view: View) -> Iterator[Finding]:
    """A cluster deletes the topics of a namespace whose cluster lists do not name it.

    With one store for both clusters, blue's list stays as it is: with both names in it each would replicate to the
    other. There allowed clusters say who serves the namespace (PIP-321; observed on 4.0.7 and 4.2.4).
    """
    if not has_one_store(view.blue.snapshot, view.green.snapshot):
        for facts in view.moving:
            for key in LISTS:
                listed = (facts.green or {}).get(key) or []
                if listed and view.green.name not in listed:
                    yield _NOT_IN_LIST.finding(
                        str(facts.namespace),
                        f"{key} on {view.green.name} = {', '.join(listed)}",
                        f"add {view.green.name} to {key} of the namespace on {view.green.name}, and leave the other "
                        "clusters in it." + (_ONE_STORE if view.blue.name in listed else ""),
                    )
        return
    for facts in view.moving:
        yield from _served_from_one_store(str(facts.namespace), facts.green or {}, view.green.name)


_ONE_STORE = (
    " Not if both clusters read one configuration store, which this run sees only by an address that both have: they "
    "would replicate to each other. Leave the namespace out of the run then."
)


def _served_from_one_store(name: str, document: JsonObject, green: str) -> Iterator[Finding]:
    replicating, allowed = LISTS
    listed = document.get(replicating) or []
    if len(listed) > 1:
        yield _REPLICATES.finding(
            name,
            f"{replicating} on both clusters = {', '.join(listed)}",
            "leave the namespace out of the run: only one that replicates nowhere can move between two clusters with "
            "one configuration store.",
        )
    serving = document.get(allowed) or listed
    if not serving or green in serving:
        return
    evidence = f"{allowed} on {green} = {', '.join(document.get(allowed) or ['none'])}"
    if allowed not in document:
        remedy = (
            "upgrade the brokers to Pulsar 4.0: both clusters read one configuration store, and without allowed "
            f"clusters of namespaces {green} cannot serve one without replicating it."
        )
        yield _NOT_IN_LIST.finding(name, evidence, remedy)
        return
    remedy = (
        f"allow {green} to serve the namespace too. Both clusters read one configuration store: do not add {green} to "
        f"{replicating}, or the two replicate to each other."
    )
    path = f"/namespaces/{NamespaceName.parse(name).path}/allowedClusters"
    call = call_text(green, with_body("POST", path, sorted({*serving, green})))
    yield _NOT_IN_LIST.finding(name, evidence, remedy, call=call)


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
            f"move the namespace with {Strategy.COMPLETE}."
            if view.is_moved_before(facts.namespace)
            else f"move the namespace with {Strategy.REPOINT}, or every namespace with {Strategy.WHOLE_CLUSTER}.",
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
