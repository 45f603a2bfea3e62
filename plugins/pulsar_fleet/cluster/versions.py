"""Versions of brokers: how they compare, and what was measured of each (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


def version_numbers(version: str) -> tuple[int, ...]:
    """`4.2.4-SNAPSHOT` → (4, 2, 4), for comparing."""
    numbers = (part for part in version.partition("-")[0].split("."))
    return tuple(int(part) for part in numbers if part.isdigit())


class Role(StrEnum):
    """What a cluster is in a procedure."""

    SOURCE = "source"
    TARGET = "target"
    PEER = "peer"
    """One of several clusters that are kept equal: it is read and written."""


class Redirect(StrEnum):
    """The unit that a broker can flag, so that it redirects clients to another cluster (PIP-188)."""

    NAMESPACE = "namespace"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What was measured of the brokers of one minor version.

    :param line: the minor version, such as `4.2`.
    :param measured: the release that the tests run.
    :param roles: in which it was run.
    :param redirects: the units that it can redirect.
    :param differences: what it does differently from the newest one, in sentences.
    :param unthrottles_late: a producer waits on after its publish rate was lifted, for as long as was computed before.
    """

    line: str
    measured: str
    roles: frozenset[Role]
    redirects: frozenset[Redirect]
    differences: tuple[str, ...] = ()
    unthrottles_late: bool = False


RELEASES: tuple[Release, ...] = (
    Release(
        line="3.0",
        measured="3.0.7",
        roles=frozenset({Role.SOURCE, Role.PEER}),
        redirects=frozenset({Redirect.CLUSTER}),
        differences=(
            "It flags a whole cluster and no namespace.",
            "That flag terminates the brokers' own topics too: health checks fail, a broker that restarts serves no "
            "topic, also after the flag was cleared, and a policy that is set on a topic is stored on the other "
            "cluster. It does not redirect a consumer that waits for messages when its topic is terminated.",
            "It lacks `dispatcherPauseOnAckStatePersistentEnabled`, the limit of delayed delivery, and what exists "
            "since 4.2.",
            "It writes the local and the global policies of a topic under one key of `__change_events`: a compaction "
            "keeps those that were set last. A topic whose local ones were hidden so is named as not readable; global "
            "ones that were set before the local ones are not seen after it.",
            "It loses a policy of a topic that is set before the last one can be read; here each is read back first.",
            "Some of its setters of a global policy write all local policies of the topic as global ones.",
            "Its replicator writes no source position into the copies: their entries are found by producer, sequence "
            "id and publish time.",
        ),
    ),
    Release(
        line="4.0",
        measured="4.0.7",
        roles=frozenset(Role),
        redirects=frozenset(Redirect),
        differences=(
            "It lacks `allowed_topic_property_keys_for_metrics` and a topic's `subscriptionExpirationTimeInMinutes`.",
            "It forgets the bundles with which a namespace was created when its first affinity is set.",
            "It computes how long a producer waits when it throttles it, and does not end that wait when the publish "
            "rate is lifted.",
        ),
        unthrottles_late=True,
    ),
    Release(line="4.2", measured="4.2.4", roles=frozenset(Role), redirects=frozenset(Redirect)),
)
"""Every minor version of which a broker was run; all others are unknown."""

_TOPIC_POLICIES_KEPT = "4.0"


def release_of(version: str) -> Release | None:
    """The release to which a broker's version belongs; None if none of its brokers was ever run."""
    line = ".".join(map(str, version_numbers(version)[:2]))
    return next((release for release in RELEASES if release.line == line), None)


def loses_topic_policies(version: str) -> bool:
    """Whether brokers lose a topic policy that is set before the last one can be read."""
    return version_numbers(version) < version_numbers(_TOPIC_POLICIES_KEPT)
