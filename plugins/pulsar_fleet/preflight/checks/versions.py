"""Versions of the brokers of both clusters (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pulsar_fleet.cluster.text import listed
from pulsar_fleet.cluster.versions import (
    RELEASES,
    Fact,
    Role,
    changes_since_measured,
    release_of,
    version_numbers,
    version_order,
)
from pulsar_fleet.preflight.context import Pair, blocker, warning
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
