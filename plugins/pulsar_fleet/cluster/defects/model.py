"""A known defect of brokers: where it is, how it shows, and what is safe to do about it (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pulsar_fleet.cluster.versions import version_numbers, version_order


class Condition(StrEnum):
    """What an estate must hold for a defect to be able to harm it."""

    BATCH_ACKNOWLEDGMENTS = "a subscription has individual acknowledgments, and brokers store them within batches"
    SHADOW_TOPICS = "there are shadow topics"
    COMPACTION = "topics are compacted"
    READERS_WITH_EXPIRY = "a namespace with a time to live has readers"
    OFFLOAD = "ledgers are offloaded"
    TOPIC_POLICIES = "topics have policies of their own"
    SUBSCRIBE_RATE = "the rate of subscribing is limited"
    REPLICATION = "topics are replicated to another cluster, and inactive topics are deleted"
    REPLICATOR_RATE = "topics are replicated to another cluster at a limited rate"
    REPLICATED_SUBSCRIPTIONS = "there are replicated subscriptions"
    DOTTED_NAME = "the name of a cluster to which topics are replicated has a dot"
    EMPTY_LIST = "a namespace has an empty list of clusters"
    PROXY = "clients connect through a proxy"
    INTERCEPTORS = "brokers load interceptors"
    LISTENERS = "brokers advertise several listeners, and the modular load manager places topics"
    METADATA_EVENTS = "brokers synchronize metadata by events"
    SYMPTOM = "nothing in the estate tells; its symptom does"


class Evidence(StrEnum):
    """Who says that brokers have the defect."""

    MEASURED = "measured here"
    UPSTREAM = "upstream's word"


@dataclass(frozen=True, slots=True)
class Span:
    """The patches of one line that have a defect.

    :param line: such as `4.0`.
    :param fixed: the first patch without it; empty while it is not fixed.
    """

    line: str
    fixed: str = ""

    def has(self, version: str) -> bool:
        """Whether a patch of any line is in it."""
        return line_of(version) == self.line and (not self.fixed or version_order(version) < version_order(self.fixed))


def line_of(version: str) -> str:
    """The minor version of a broker's version: `4.2.4-SNAPSHOT` → `4.2`."""
    return ".".join(map(str, version_numbers(version)[:2]))


def fixed_in(*patches: str) -> tuple[Span, ...]:
    """Every older patch of the lines of these patches."""
    return tuple(Span(line_of(patch), patch) for patch in patches)


def open_in(*lines: str) -> tuple[Span, ...]:
    """Every patch of these lines."""
    return tuple(Span(line) for line in lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDefect:
    """A known defect.

    :param id: stable, such as `shadow-deletes-source`; it is the id of a finding of the checks.
    :param symptom: what it does, as a sentence.
    :param spans: where it is known to be; of other lines nothing is known.
    :param condition: what the checks look for in an estate.
    :param signs: incidents of a drain, and diagnoses of replicators, that it explains.
    :param seen: how a person recognizes it in a log, in statistics or in an answer, as a sentence.
    :param remedy: what is safe to do, as a sentence without its capital letter.
    :param issues: of upstream, `apache/pulsar#26746`; the first one is the change that fixes it, or its report.
    """

    id: str
    symptom: str
    spans: tuple[Span, ...]
    condition: Condition
    seen: str
    remedy: str
    issues: tuple[str, ...]
    signs: tuple[str, ...] = ()
    evidence: Evidence = Evidence.UPSTREAM

    def has(self, version: str) -> bool:
        """Whether brokers of this version are known to have it; False says nothing of lines without a span."""
        return any(span.has(version) for span in self.spans)

    @property
    def fix(self) -> str:
        """`fixed in 4.0.14, 4.2.5` or `not fixed`; a line where it is not fixed is named beside those where it is."""
        patches = [span.fixed for span in self.spans if span.fixed]
        left = [span.line for span in self.spans if not span.fixed]
        if not patches:
            return "not fixed"
        return f"fixed in {', '.join(patches)}" + (f", not fixed in {', '.join(left)}" if left else "")

    @property
    def reference(self) -> str:
        """`apache/pulsar#26746 (fixed in 4.0.14, 4.2.5, 5.0.0)`."""
        return f"{self.issues[0]} ({self.fix})"
