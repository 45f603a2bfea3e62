"""Versions of brokers: how they compare, and what was measured of each (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


def version_numbers(version: str) -> tuple[int, ...]:
    """`4.2.4-SNAPSHOT` → (4, 2, 4), for comparing."""
    numbers = (part for part in version.partition("-")[0].split("."))
    return tuple(int(part) for part in numbers if part.isdigit())


def version_order(version: str) -> tuple[tuple[int, ...], int]:
    """For comparing patches: a milestone such as `5.0.0-M1` comes before its release."""
    milestone = version.partition("-M")[2]
    return version_numbers(version), int(milestone) if milestone.isdigit() else _RELEASED


_RELEASED = 1_000


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
    """

    line: str
    measured: str
    roles: frozenset[Role]
    redirects: frozenset[Redirect]
    differences: tuple[str, ...] = ()


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
            "It forgets the bundles with which a namespace was created when its first affinity is set before they are "
            "loaded; here they are loaded first.",
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
            "It forgets the bundles with which a namespace was created when its first affinity, or its flag, is set "
            "before they are loaded; here they are loaded first.",
        ),
    ),
    Release(line="4.2", measured="4.2.4", roles=frozenset(Role), redirects=frozenset(Redirect)),
    Release(line="5.0", measured="5.0.1", roles=frozenset(Role), redirects=frozenset({Redirect.NAMESPACE})),
)
"""Every minor version of which a broker was run; all others are unknown."""


def release_of(version: str) -> Release | None:
    """The release to which a broker's version belongs; None if none of its brokers was ever run."""
    line = version_numbers(version)[:2]
    return next((release for release in RELEASES if version_numbers(release.line) == line), None)


class Word(StrEnum):
    """Who says that a fact is true from a patch on."""

    MEASURED = "measured on brokers before and after it"
    HALF = "measured on brokers before it; upstream's word for those after it"
    UPSTREAM = "upstream's word"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What brokers do from a patch of each line on.

    :param id: of the field, as procedures name it.
    :param says: what these brokers do, as a sentence.
    :param before: what older brokers do instead, as a sentence.
    :param since: the first patch of each line that does it; lines above all of these do it too.
    :param source: the change of Pulsar, and what was measured.
    """

    id: str
    says: str
    before: str
    since: tuple[str, ...]
    source: str
    word: Word

    def holds(self, version: str) -> bool:
        """Whether brokers of this version do it, as far as anybody knows; False for a line between those of `since`."""
        order = version_order(version)
        patches = {version_numbers(patch)[:2]: version_order(patch) for patch in self.since}
        patch = patches.get(order[0][:2])
        return order > max(patches.values()) if patch is None else order >= patch

    def came_with(self, older: str, newer: str) -> bool:
        """Whether brokers of `newer` do it, and those of `older` do not."""
        return self.holds(newer) and not self.holds(older)


# Releases that came out together, and the first of 5.0 that has what is in them.
_JULY_2026 = ("4.0.12", "4.2.3", "5.0.0")
_OCTOBER_2026 = ("4.0.14", "4.2.5", "5.0.0")
KEEPS_TOPIC_POLICIES = Fact(
    id="keeps-topic-policies",
    says="A policy of a topic that is set before the last one can be read is kept.",
    before="A policy of a topic that is set before the last one can be read is lost.",
    since=("4.0.0",),
    source="3.0.7 and 4.0.7",
    word=Word.MEASURED,
)
REPLICATES_WITH_DEDUPLICATION = Fact(
    id="replicates-with-deduplication",
    says="Replicated messages are not dropped as duplicates.",
    before="With deduplication, replicated messages may be dropped as duplicates.",
    since=("3.0.11", "3.3.6", "4.0.4"),
    source="apache/pulsar#23697",
    word=Word.UPSTREAM,
)
UNTHROTTLES_AT_ONCE = Fact(
    id="unthrottles-at-once",
    says="A producer publishes again as soon as its publish rate is lifted.",
    before="A throttled producer waits on, after its rate was lifted, for as long as was computed before.",
    since=("3.0.0", "4.0.10", "4.2.1"),
    source="apache/pulsar#25502; 3.0.7, 4.0.7 and 4.2.4",
    word=Word.MEASURED,
)
REDIRECTS_WITHOUT_WAITING = Fact(
    id="redirects-without-waiting",
    says="No thread of a broker waits while it reads where a client is redirected.",
    before="Each client of an unloaded topic in a flagged namespace holds a thread of its broker until the redirect is "
    "read: when as many connect at once as it has such threads, it stands still for 30 s, each time.",
    since=("4.0.12", "4.2.3"),
    source="apache/pulsar#26051; 4.0.7, 4.2.4 and 5.0.1",
    word=Word.MEASURED,
)
COMPLETES_PUBLISHES = Fact(
    id="completes-publishes-in-flight",
    says="Publishes in flight are completed when their topic is terminated.",
    before="Publishes in flight at a termination may never be completed, and their topic stays fenced.",
    since=_OCTOBER_2026,
    source="apache/pulsar#26678; 4.0.7, 4.2.4 and 5.0.1",
    word=Word.MEASURED,
)
ENDS_AT_THE_TERMINATION = Fact(
    id="ends-at-the-termination",
    says="No entry is stored behind the position of a termination.",
    before="Entries may be confirmed to producers behind the position of a termination, and never delivered.",
    since=_OCTOBER_2026,
    source="apache/pulsar#26680; 4.2.4",
    word=Word.HALF,
)
KEEPS_BATCH_ACKNOWLEDGMENTS = Fact(
    id="keeps-batch-acknowledgments",
    says="Acknowledgments within a batch survive an unload.",
    before="An unload forgets acknowledgments within a batch: these messages are delivered again.",
    since=("4.0.14", "4.2.5", "5.0.0-M2"),
    source="apache/pulsar#26474",
    word=Word.UPSTREAM,
)
KEEPS_THE_MARK = Fact(
    id="keeps-the-mark-of-the-flag",
    says="The mark of a terminated topic survives a crash of its broker.",
    before="A crash right after the flag may lose the mark of a terminated topic, its property `migrated`.",
    since=_OCTOBER_2026,
    source="apache/pulsar#26227, apache/pulsar#26509",
    word=Word.UPSTREAM,
)
KEEPS_SOURCES_OF_SHADOWS = Fact(
    id="keeps-the-source-of-a-shadow",
    says="Trimming, offloading or deleting a shadow topic leaves the ledgers of its source alone.",
    before="Trimming, offloading or deleting a shadow topic may delete ledgers of its source.",
    since=_OCTOBER_2026,
    source="apache/pulsar#26746; trimming and deleting on 4.2.4 and 5.0.1",
    word=Word.MEASURED,
)
SWITCHES_SHADOW_TOPICS = Fact(
    id="switches-shadow-topics",
    says="`enableShadowTopics` decides whether shadow topics are created, loaded and replicated to.",
    before="Shadow topics cannot be switched off.",
    since=_OCTOBER_2026,
    source="apache/pulsar#26739; 4.2.4 and 5.0.1",
    word=Word.MEASURED,
)
CHECKS_MORE_RIGHTS = Fact(
    id="checks-more-rights",
    says="Reading schemas and subscriptions needs the rights of the topic: a role that read them may be refused.",
    before="Schemas and subscriptions are read without the rights of the topic.",
    since=_OCTOBER_2026,
    source="apache/pulsar#26643, apache/pulsar#26644, apache/pulsar#26767, apache/pulsar#26773",
    word=Word.UPSTREAM,
)
WAITS_FOR_TOPIC_POLICIES = Fact(
    id="waits-for-topic-policies",
    says="Policies of a topic are read when all of them are loaded.",
    before="Policies of a topic that are read right after an unload may be an older answer.",
    since=_OCTOBER_2026,
    source="apache/pulsar#26513",
    word=Word.UPSTREAM,
)
CREATES_TOPICS_ON_TARGETS = Fact(
    id="creates-topics-on-targets",
    says="A replicator creates the topic that its target lacks, with its partitions, also where creation is off there.",
    before="A replicator creates no topic: automatic creation of the target does, which makes partitions without their "
    "partitioned topic (3.0.7, 4.0.7), or none (4.2.4).",
    since=("4.2.0",),
    source="apache/pulsar#24652; 3.0.7, 4.0.7 and 4.2.4",
    word=Word.MEASURED,
)
KEEPS_REPLICATED_TOPICS = Fact(
    id="keeps-replicated-topics",
    says="An inactive topic that still replicates is not deleted.",
    before="An inactive topic may be deleted while it still replicates.",
    since=_JULY_2026,
    source="apache/pulsar#25915",
    word=Word.UPSTREAM,
)
STORES_TOPIC_POLICIES_AS_METADATA = Fact(
    id="stores-topic-policies-as-metadata",
    says="Policies of topics can be stored as metadata: then `__change_events` has none of them (PIP-469).",
    before="Policies of topics are in `__change_events`.",
    since=_JULY_2026,
    source="apache/pulsar#25707",
    word=Word.UPSTREAM,
)
HOLDS_SCALABLE_TOPICS = Fact(
    id="holds-scalable-topics",
    says="Namespaces may hold scalable topics (`topic://…`), which no other list has.",
    before="There are no scalable topics.",
    since=("5.0.0-M1",),
    source="4.2.4, 5.0.0-M1 and 5.0.1",
    word=Word.MEASURED,
)
REFUSES_SPACED_NAMES = Fact(
    id="refuses-spaced-names",
    says="A topic whose name ends with white space is refused; one that begins with it, and subscriptions, are not.",
    before="Topics may have names that end with white space.",
    since=("5.0.0",),
    source="apache/pulsar#26281; 4.2.4 and 5.0.1",
    word=Word.MEASURED,
)
LIMITS_SCHEMAS_OF_REPLICATORS = Fact(
    id="limits-schemas-of-replicators",
    says="A replicator may register schemas where producers may not, by a policy of its own (PIP-433).",
    before="A replicator registers schemas where producers may.",
    since=("5.0.0-M1",),
    source="PIP-433; 4.2.4 and 5.0.1",
    word=Word.MEASURED,
)
FACTS: tuple[Fact, ...] = (
    KEEPS_TOPIC_POLICIES,
    REPLICATES_WITH_DEDUPLICATION,
    UNTHROTTLES_AT_ONCE,
    REDIRECTS_WITHOUT_WAITING,
    STORES_TOPIC_POLICIES_AS_METADATA,
    CREATES_TOPICS_ON_TARGETS,
    KEEPS_REPLICATED_TOPICS,
    COMPLETES_PUBLISHES,
    ENDS_AT_THE_TERMINATION,
    KEEPS_BATCH_ACKNOWLEDGMENTS,
    KEEPS_THE_MARK,
    KEEPS_SOURCES_OF_SHADOWS,
    SWITCHES_SHADOW_TOPICS,
    CHECKS_MORE_RIGHTS,
    WAITS_FOR_TOPIC_POLICIES,
    HOLDS_SCALABLE_TOPICS,
    LIMITS_SCHEMAS_OF_REPLICATORS,
    REFUSES_SPACED_NAMES,
)
"""Every fact that depends on a patch, in the order of the patches."""


def replicators_are_excepted(source: str, target: str) -> bool:
    """Whether replicators may register schemas where producers may not: the target must know the policy, and the source
    must tell that its producer is a replicator (observed: 5.0.1 to 5.0.1 does, 4.2.4 to 5.0.1 does not).
    """
    return all(LIMITS_SCHEMAS_OF_REPLICATORS.holds(version) for version in (source, target))


def deletes_shadows_alone(version: str) -> bool:
    """Whether a broker deletes a shadow topic without ledgers of its source: since 5.0.0, since that alone was measured
    of the releases that `KEEPS_SOURCES_OF_SHADOWS` names.
    """
    return version_numbers(version) >= (5,) and KEEPS_SOURCES_OF_SHADOWS.holds(version)


def changes_since_measured(version: str) -> tuple[Fact, ...]:
    """What is known to differ between a patch and the measured one of its line; nothing for a line without one."""
    release = release_of(version)
    if release is None:
        return ()
    pair = sorted((version, release.measured), key=version_order)
    return tuple(fact for fact in FACTS if fact.came_with(*pair))
