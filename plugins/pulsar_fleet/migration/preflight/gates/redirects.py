"""Where blue's clients are sent: complete, really reachable, really green, and nothing left over (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.migration.cutover.redirect import KINDS
from pulsar_fleet.migration.preflight.gates.catalogue import Owner, blocks
from pulsar_fleet.migration.preflight.view import AddressProbe, ClusterFacts, View
from pulsar_fleet.preflight.findings import Finding

_UNREACHABLE = blocks(
    "redirect-unreachable",
    Owner.RUN,
    "Blue's clients would be sent where nobody answers: their topics are closed on blue, and they hang.",
)
_NOT_GREEN = blocks(
    "redirect-not-green",
    Owner.RUN,
    "Blue's clients would be sent to another cluster and write there.",
    never_waived="what they write there is not on green.",
)
_NOT_PROVEN = blocks(
    "redirect-not-proven",
    Owner.RUN,
    "Something answers there that may not be green: blue's clients would be sent to it.",
)
_KIND_MISSING = blocks(
    "redirect-kind-missing",
    Owner.GREEN,
    "A client of blue that uses this kind of connection finds none on green: it hangs, and its topic is closed.",
)
_TO_ANOTHER = blocks(
    "redirect-to-another-cluster",
    Owner.RUN,
    "A cluster has one redirect address: this run would move an earlier migration's clients.",
    never_waived="clients of the earlier migration would write to the wrong cluster.",
)
_LEFT_ON_GREEN = blocks(
    "redirect-left-on-green",
    Owner.GREEN,
    "A flag on green would send the clients that arrive away again, or back and forth until they time out.",
)
_UNKNOWN = blocks(
    "redirect-unknown",
    Owner.RUN,
    "Whether an earlier migration's redirect is stored is not known, and storing another would move its clients.",
)
_CREDENTIALS = blocks(
    "credentials-refused-by-green",
    Owner.GREEN,
    "Clients keep their own credentials on a redirect: those that blue takes and green refuses hang.",
)
_TRUST = blocks(
    "certificate-not-trusted",
    Owner.GREEN,
    "Clients keep their own trust store on a redirect: those that trust blue's authority alone cannot connect.",
)


def redirect_is_complete_and_green(view: View) -> Iterator[Finding]:
    """Every kind of client that blue serves must find green; each address is judged by what answered there."""
    served = view.green.offers()
    for probe in view.survey.redirecting.probes:
        kind = KINDS[probe.key]
        if served and kind not in served:
            if kind in view.blue.offers() and kind.startswith("pulsar"):
                yield _kind_missing(view, probe, kind)
        elif not probe.placeholder or kind in served:
            yield from _judge(view, probe)


def _kind_missing(view: View, probe: AddressProbe, kind: str) -> Finding:
    return _KIND_MISSING.found(
        f"cluster {view.green.name}",
        f"{view.blue.name} offers {kind}://, {view.green.name} does not; {probe.url} would be a placeholder",
        f"open {kind}:// on {view.green.name}'s brokers, or make sure that no client of blue uses it and waive this.",
    )


def _judge(view: View, probe: AddressProbe) -> Iterator[Finding]:
    where, green = f"{probe.key} {probe.url}", view.green.name
    if probe.error:
        yield _UNREACHABLE.found(
            where,
            f"no connection from here: {probe.error}",
            f"correct the address in the connection to {green}, or open the network to it.",
        )
    elif not probe.answered:
        yield _NOT_PROVEN.found(
            where,
            probe.detail or "it did not say who it is",
            f"give the connection an address that leads to {green}'s own brokers.",
        )
    elif probe.answered not in view.survey.redirecting.advertised:
        known = ", ".join(sorted(view.survey.redirecting.advertised)) or "none"
        yield _NOT_GREEN.found(
            where,
            f"{probe.answered} answers there, and {green}'s brokers are {known}",
            f"correct the address in the connection to {green}: it leads to another cluster.",
        )


def nothing_is_stored_from_before(view: View) -> Iterator[Finding]:
    """A stored redirect acts as soon as a flag is set; the one of an earlier wave to the same green is wanted."""
    for cluster in (view.blue, view.green):
        if cluster.redirect is None:
            yield _UNKNOWN.found(
                f"cluster {cluster.name}",
                "its stored redirect could not be read",
                f"look at GET /admin/v2/clusters/{cluster.name}/migrate with a superuser's token.",
            )
    elsewhere = _stored(view.blue) - set(view.survey.redirecting.document.values())
    if elsewhere:
        yield _TO_ANOTHER.found(
            f"cluster {view.blue.name}",
            f"its clients are redirected to {', '.join(sorted(elsewhere))}, not to "
            f"{view.survey.redirecting.document.get('brokerServiceUrl')}",
            "finish that migration and take its redirect away, or give the connection of that cluster as green.",
            call=f"{view.blue.name}: POST /admin/v2/clusters/{view.blue.name}/migrate?migrated=false",
        )
    # A redirect back to blue is that of a way back, or of the migration that is turned round: others still need it.
    if found := _stored(view.green) - view.survey.home:
        yield _LEFT_ON_GREEN.found(
            f"cluster {view.green.name}",
            f"its clients would be redirected to {', '.join(sorted(found))}",
            "take it away: it is left over from another migration.",
            call=f"{view.green.name}: POST /admin/v2/clusters/{view.green.name}/migrate?migrated=false",
        )


def _stored(cluster: ClusterFacts) -> set[str]:
    document = (cluster.redirect or {}).get("migratedClusterUrl") or {}
    return {str(url) for key, url in document.items() if key in KINDS and url and key.startswith("broker")}


def clients_are_let_in(view: View) -> Iterator[Finding]:
    """The redirect carries no credentials: clients come to green with what they show to blue."""
    redirecting = view.survey.redirecting
    if redirecting.credentials:
        yield _CREDENTIALS.found(
            f"cluster {view.green.name}",
            f"the credentials with which we come to {view.blue.name} are refused: {redirecting.credentials}",
            f"let {view.green.name}'s brokers accept the tokens or certificates that {view.blue.name} accepts.",
        )
    if redirecting.trust:
        yield _TRUST.found(
            f"cluster {view.green.name}",
            f"with the trust store that we use for {view.blue.name}: {redirecting.trust}",
            f"give {view.green.name} a certificate of the same authority, or the clients both authorities.",
        )
