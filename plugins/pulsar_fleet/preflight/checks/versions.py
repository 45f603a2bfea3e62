"""Versions of the brokers of both clusters, and what newer ones do otherwise where the estate meets it (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pulsar_fleet.cluster.names import SHADOW_SOURCE
from pulsar_fleet.cluster.text import listed
from pulsar_fleet.cluster.versions import (
    REFUSES_SPACED_NAMES,
    RELEASES,
    Fact,
    Role,
    changes_since_measured,
    release_of,
    version_numbers,
    version_order,
)
from pulsar_fleet.preflight.context import Pair, blocker, names_in, settings, warning
from pulsar_fleet.preflight.findings import Finding


def brokers_run_supported_versions(pair: Pair) -> Iterator[Finding]:
    """Procedures rely on what was measured of a version; a target older than its source may lack features."""
    for snapshot, role in ((pair.source, Role.SOURCE), (pair.target, Role.TARGET)):
        versions = sorted({broker.version for broker in snapshot.brokers}, key=version_numbers)
        yield from _measured(snapshot.cluster, versions, role)
        if len(versions) > 1:
            yield warning(
                "versions-mixed",
                f"cluster {snapshot.cluster}",
                f"brokers run {', '.join(versions)}",
                "Which policies exist depends on the broker that answers.",
                "finish the rolling upgrade first.",
            )
    old, new = pair.target.oldest_version(), pair.source.oldest_version()
    if version_numbers(old)[:2] < version_numbers(new)[:2]:
        yield warning(
            "target-older",
            f"cluster {pair.target.cluster}",
            pair.values(new, old),
            "Policies that exist only in the newer version are left out on the target.",
            "upgrade the target, or accept what the plan lists as left alone.",
            values=(new, old),
        )


def unmeasured_versions(cluster: str, versions: Iterable[str], role: Role = Role.PEER) -> tuple[str, ...]:
    """What is not known of a cluster's brokers, a sentence each, for procedures that nobody can be asked in."""
    findings = _measured(cluster, sorted(set(versions), key=version_numbers), role)
    return tuple(f"{finding.resource}: {finding.evidence}. {finding.consequence}" for finding in findings)


def _measured(cluster: str, versions: Sequence[str], role: Role) -> Iterator[Finding]:
    unknown = [version for version in versions if release_of(version) is None]
    if unknown:
        yield blocker(
            "version-unknown",
            f"cluster {cluster}",
            f"brokers run {', '.join(unknown)}",
            "Its policies, its setters and what its brokers redirect were never compared with those of "
            f"{', '.join(release.measured for release in RELEASES)}; some may be lost without an error.",
            "use brokers of one of these minor versions, or accept with a waiver that this one was not compared.",
        )
    for version in versions:
        if (release := release_of(version)) and (changed := changes_since_measured(version)):
            yield _unmeasured_patch(cluster, version, release.measured, changed)
    releases = [release for version in versions if (release := release_of(version)) and role not in release.roles]
    if releases:
        older = releases[0]
        yield blocker(
            "version-unsupported",
            f"cluster {cluster}",
            f"brokers run {', '.join(versions)}",
            f"Pulsar {older.line} was never measured as a {role}: policies that it lacks are lost.",
            f"upgrade the brokers to {_first_line(role)} or newer.",
        )


def _unmeasured_patch(cluster: str, version: str, measured: str, changed: Sequence[Fact]) -> Finding:
    """The patch counts as the measured one of its line, but for what is known to differ."""
    newer = version_order(version) > version_order(measured)
    differences = " ".join(fact.says if newer else fact.before for fact in changed)
    sources = listed(sorted({fact.source.partition(";")[0] for fact in changed}), most=20)
    return warning(
        "version-not-measured",
        f"cluster {cluster}",
        f"brokers run {version}; of its line {measured} was measured",
        f"What is known to differ: {differences}",
        f"rehearse the procedure with brokers of this patch, and read {sources}.",
    )


def _first_line(role: Role) -> str:
    return next(release.line for release in RELEASES if role in release.roles)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedDefault:
    """A broker setting whose default differs between versions.

    :param before: its value where brokers lack it, or what they did before they had it.
    :param now: the value on the target that matters.
    :param met_by: the resources of the source that meet it; none, no finding.
    """

    key: str
    before: str
    now: str
    finding: str
    met_by: Callable[[Pair], Iterable[str]]
    consequence: str
    remedy: str


def _shadow_topics(pair: Pair) -> Iterator[str]:
    yield from (topic.name for topic in pair.source.topics if SHADOW_SOURCE in topic.properties)


def _subscriptions(pair: Pair) -> Iterator[str]:
    yield from (f"{row.name} of {row.partition}" for row in pair.source.subscriptions)


def _links_with_tls(pair: Pair) -> Iterator[str]:
    """Clusters that the target's brokers connect to with TLS, by what is stored of them."""
    for side in (pair.source, pair.target):
        for cluster in side.clusters:
            if cluster.data.get("brokerClientTlsEnabled"):
                yield f"cluster {cluster.name}"


def _proxies(pair: Pair) -> Iterator[str]:
    for value in settings(pair.target, "proxyRoles").values():
        yield from names_in(value)


CHANGED_DEFAULTS: tuple[ChangedDefault, ...] = (
    ChangedDefault(
        key="enableShadowTopics",
        before="true",
        now="false",
        finding="shadow-topics-off",
        met_by=_shadow_topics,
        consequence="Shadow topics are neither created nor loaded there, and nothing is replicated to them.",
        remedy="set enableShadowTopics=true in broker.conf of {target} and restart its brokers, if they are to serve "
        "shadow topics.",
    ),
    ChangedDefault(
        key="acknowledgmentAtBatchIndexLevelEnabled",
        before="false",
        now="false",
        finding="batch-acknowledgments-off",
        met_by=_subscriptions,
        consequence="An acknowledgment within a batch counts only when the whole batch is acknowledged: consumers get "
        "more messages again after they connect again.",
        remedy="set acknowledgmentAtBatchIndexLevelEnabled=true in broker.conf of {target} and restart its brokers, or "
        "nothing if consumers can take messages twice.",
    ),
    ChangedDefault(
        key="tlsHostnameVerificationEnabled",
        before="false",
        now="true",
        finding="host-names-are-verified",
        met_by=_links_with_tls,
        consequence="Brokers refuse the other cluster's certificate where it does not have the host's name: "
        "replication does not connect.",
        remedy="check that the certificates of the other cluster's brokers have the host names of their addresses.",
    ),
    ChangedDefault(
        key="authenticateOriginalAuthData",
        before="false",
        now="true",
        finding="original-credentials-are-checked",
        met_by=_proxies,
        consequence="Brokers check the credentials of a client behind a proxy themselves: clients that come to the "
        "proxy with certificates or SASL are refused.",
        remedy="if such clients come through a proxy, set authenticateOriginalAuthData=false in broker.conf of "
        "{target} and restart its brokers.",
    ),
)
"""Where only the number matters and the plan copies it, as for the bundles of a namespace, there is no row."""


def changed_defaults_are_harmless(pair: Pair) -> Iterator[Finding]:
    """Settings whose effective values differ because newer brokers have another default, where the estate meets it."""
    for row in CHANGED_DEFAULTS:
        ours = sorted(set(settings(pair.source, row.key).values())) or [row.before]
        theirs = sorted(set(settings(pair.target, row.key).values()))
        if row.now not in theirs or ours == theirs:
            continue
        if names := list(dict.fromkeys(row.met_by(pair))):
            yield warning(
                row.finding,
                f"cluster {pair.target.cluster}",
                f"{row.key}: {pair.values(' and '.join(ours), ' and '.join(theirs))}; {listed(names)}",
                row.consequence,
                row.remedy.format(target=pair.target.cluster),
                values=(" and ".join(ours), " and ".join(theirs)),
            )


def names_have_no_white_space_at_their_ends(pair: Pair) -> Iterator[Finding]:
    """Topics whose names the target's brokers refuse; brokers before 5.0.0 allow them (4.2.4).

    5.0.1 takes a topic whose name begins with white space, and any subscription.
    """
    versions = sorted({broker.version for broker in pair.target.brokers if REFUSES_SPACED_NAMES.holds(broker.version)})
    if not versions:
        return
    if names := [f"topic {row.name!r}" for row in pair.source.topics if row.name != row.name.rstrip()]:
        yield blocker(
            "name-with-white-space",
            f"cluster {pair.target.cluster}",
            f"brokers run {', '.join(versions)}; {listed(names)}",
            "Brokers since 5.0.0 refuse a topic whose name ends with white space: these are not copied, and their "
            "clients are refused.",
            f"let their applications use other names on {pair.source.cluster} before they move.",
        )
