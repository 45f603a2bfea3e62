"""The redirect of blue's clients: complete, reachable, green, and no other redirect stored (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.migration.cutover.redirect import ADDRESS_SCHEMES
from pulsar_fleet.migration.preflight.gates.catalogue import Owner, blocks
from pulsar_fleet.migration.preflight.view import AddressProbe, ClusterFacts, View
from pulsar_fleet.preflight.findings import Finding

_UNREACHABLE = blocks(
    "redirect-unreachable",
    Owner.RUN,
    "Blue's clients would be redirected to an address that does not answer: they hang, their topics are terminated.",
)
_NOT_GREEN = blocks(
    "redirect-not-green",
    Owner.RUN,
    "Blue's clients would be redirected to another cluster and write there.",
    never_waived="what they write there is not on green.",
)
_NOT_VERIFIED = blocks(
    "redirect-not-verified",
    Owner.RUN,
    "What answers there may not be green: blue's clients would be redirected to it.",
)
_KIND_MISSING = blocks(
    "redirect-kind-missing",
    Owner.GREEN,
    "A client of blue that uses this kind of connection finds none on green: it hangs, and its topic is terminated.",
)
_TO_ANOTHER = blocks(
    "redirect-to-another-cluster",
    Owner.RUN,
    "A cluster has one redirect address: this run would redirect an earlier migration's clients.",
    never_waived="clients of the earlier migration would write to the wrong cluster.",
)
_LEFT_ON_GREEN = blocks(
    "redirect-left-on-green",
    Owner.GREEN,
    "A flag on green would redirect the clients again, or back and forth until they time out.",
)
_UNKNOWN = blocks(
    "redirect-unknown",
    Owner.RUN,
    "Whether an earlier migration's redirect is stored is not known; storing another would redirect its clients.",
)
_CREDENTIALS = blocks(
    "credentials-refused-by-green",
    Owner.GREEN,
    "Clients keep their credentials on a redirect: clients that blue accepts and green refuses hang.",
)
_TRUST = blocks(
    "certificate-not-trusted",
    Owner.GREEN,
    "Clients keep their trust store on a redirect: clients that trust only blue's authority cannot connect.",
)


def redirect_is_complete_and_green(view: View) -> Iterator[Finding]:
    """Every kind of client of blue must find green; checks which broker answered at each address."""
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
        f"open {kind}:// on {view.green.name}'s brokers, or make sure that no client of blue uses it and waive this.",
    )


def _check_probe(view: View, probe: AddressProbe) -> Iterator[Finding]:
    where, green = f"{probe.key} {probe.url}", view.green.name
    if probe.error:
        yield _UNREACHABLE.finding(
            where,
            f"no connection from here: {probe.error}",
            f"correct the address in the connection to {green}, or open the network to it.",
        )
    elif not probe.answered:
        yield _NOT_VERIFIED.finding(
            where,
            probe.detail or "it did not name its broker",
            f"set an address in the connection that leads to {green}'s own brokers.",
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
    elsewhere = _stored(view.blue) - set(view.survey.redirect_probe.document.values())
    if elsewhere:
        yield _TO_ANOTHER.finding(
            f"cluster {view.blue.name}",
            f"its clients are redirected to {', '.join(sorted(elsewhere))}, not to "
            f"{view.survey.redirect_probe.document.get('brokerServiceUrl')}",
            "finish that migration and delete its redirect, or set that cluster's connection as green.",
            call=f"{view.blue.name}: POST /admin/v2/clusters/{view.blue.name}/migrate?migrated=false",
        )
    # A redirect to blue belongs to a failback, or to the migration that this run reverts: other namespaces need it.
    if addresses := _stored(view.green) - view.survey.home:
        yield _LEFT_ON_GREEN.finding(
            f"cluster {view.green.name}",
            f"its clients would be redirected to {', '.join(sorted(addresses))}",
            "delete it: another migration left it.",
            call=f"{view.green.name}: POST /admin/v2/clusters/{view.green.name}/migrate?migrated=false",
        )


def _stored(cluster: ClusterFacts) -> set[str]:
    document = (cluster.redirect or {}).get("migratedClusterUrl") or {}
    return {str(url) for key, url in document.items() if key in ADDRESS_SCHEMES and url and key.startswith("broker")}


def clients_are_accepted(view: View) -> Iterator[Finding]:
    """A redirect has no credentials: clients connect to green with the credentials that they use for blue."""
    redirect_probe = view.survey.redirect_probe
    if redirect_probe.credentials:
        yield _CREDENTIALS.finding(
            f"cluster {view.green.name}",
            f"it refuses the credentials of the connection to {view.blue.name}: {redirect_probe.credentials}",
            f"let {view.green.name}'s brokers accept the tokens or certificates that {view.blue.name} accepts.",
        )
    if redirect_probe.trust:
        yield _TRUST.finding(
            f"cluster {view.green.name}",
            f"with the trust store of the connection to {view.blue.name}: {redirect_probe.trust}",
            f"give {view.green.name} a certificate of the same authority, or the clients both authorities.",
        )
