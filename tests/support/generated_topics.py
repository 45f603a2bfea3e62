"""Namespaces whose topics hold random combinations of what a topic can hold; the same seed gives the same namespace.

A kind of run decides what may be drawn: `HELD` has what only a copy moves, `DRAINED` nothing that a redirect would
leave, `RESISTING` is `HELD` with a topic that cannot be terminated, `REFUSED` has one thing that cannot be moved.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

TOPICS = 20
FOREVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
TWO_HOURS = 7200


class Kind(StrEnum):
    """What is drawn, and so how the run has to end."""

    HELD = "held"
    DRAINED = "drained"
    RESISTING = "resisting"
    REFUSED = "refused"


class Compaction(StrEnum):
    """`LATER`: brokers would compact it by themselves; `TRIMMED`: the log has lost what the compacted ledger has."""

    NONE = "none"
    DONE = "done"
    LATER = "later"
    TRIMMED = "trimmed"


class Refusal(StrEnum):
    """What no run moves, by the id of the finding that says so."""

    SHADOW = "shadow-stays"
    TRIMMED = "compacted-values-trimmed"
    TRANSACTIONS = "transactions-in-use"
    SUBSCRIPTIONS = "no-subscription-left"
    TYPES = "exclusive-not-permitted"
    ENCRYPTION = "replicator-not-encrypted"


@dataclass(frozen=True)
class Limit:
    """A policy of the namespace that is set when its topics are complete."""

    path: str
    value: Any


REFUSING_LIMITS = {
    Refusal.SUBSCRIPTIONS: Limit("maxSubscriptionsPerTopic", 3),
    Refusal.TYPES: Limit("subscriptionTypesEnabled", ["Shared", "Key_Shared"]),
    Refusal.ENCRYPTION: Limit("encryptionRequired", True),
}
"""What a copy does not fit under; a redirect does. The first has room for the subscriptions, and none for the run."""
HARMLESS_LIMITS = (
    Limit("maxSubscriptionsPerTopic", 6),
    Limit("subscriptionTypesEnabled", ["Exclusive", "Shared"]),
    Limit("maxConsumersPerTopic", 1),
    Limit("maxProducersPerTopic", 1),
    Limit("dispatchRate", {"dispatchThrottlingRateInMsg": 50, "ratePeriodInSecond": 1}),
    Limit("subscriptionDispatchRate", {"dispatchThrottlingRateInMsg": 50, "ratePeriodInSecond": 1}),
    Limit("replicatorDispatchRate", {"dispatchThrottlingRateInMsg": 50, "ratePeriodInSecond": 1}),
    Limit("maxUnackedMessagesPerConsumer", 10),
    Limit("maxUnackedMessagesPerSubscription", 20),
)
RETENTIONS = (
    FOREVER,
    {"retentionTimeInMinutes": 120, "retentionSizeInMB": -1},
    {"retentionTimeInMinutes": 120, "retentionSizeInMB": 100},
)


@dataclass(frozen=True)
class Subscription:
    """A durable subscription without consumers.

    :param read: how many messages of each partition it has acknowledged, from the first on.
    :param skipped: it leaves out this many behind them, and has acknowledged the next one.
    """

    name: str
    read: int
    skipped: int = 0


@dataclass(frozen=True)
class GeneratedTopic:
    """One topic, and what it holds; a plain topic unless a field says more.

    :param partitions: 0 for a plain topic.
    :param messages: in each partition.
    :param keys: how many keys the messages have.
    :param delayed: every so many messages are delayed by an hour; 0: none.
    :param transactions: two committed and one aborted transaction follow, then plain messages.
    :param tail: messages behind the compaction.
    :param unloaded: it is loaded again before the run, so that its ledger is full.
    """

    name: str
    messages: int
    keys: int
    partitions: int = 0
    retention: dict[str, int] | None = None
    ttl: int | None = None
    deduplicated: bool = False
    subscriptions: tuple[Subscription, ...] = ()
    batched: bool = False
    compressed: bool = False
    encrypted: bool = False
    delayed: int = 0
    tombstones: bool = False
    transactions: bool = False
    compaction: Compaction = Compaction.NONE
    tail: int = 0
    unloaded: bool = False
    terminated: bool = False


@dataclass(frozen=True)
class GeneratedNamespace:
    """Twenty topics, and the policies that apply to all of them."""

    seed: int
    kind: Kind
    refusal: Refusal | None
    retention: dict[str, int] | None
    ttl: int | None
    limits: tuple[Limit, ...]
    topics: tuple[GeneratedTopic, ...]

    def retains(self, topic: GeneratedTopic) -> bool:
        """Whether blue must keep what every subscription of the topic has read."""
        retention = self.retention if topic.retention is None else topic.retention
        return bool(retention and retention["retentionTimeInMinutes"])


def generate(seed: int) -> GeneratedNamespace:
    """The namespace of a seed; of eight seeds in a row four are held, two drained, one resists and one is refused."""
    chance = random.Random(seed)
    kind = (Kind.HELD, Kind.DRAINED, Kind.REFUSED, Kind.HELD, Kind.RESISTING, Kind.HELD, Kind.DRAINED, Kind.HELD)[
        seed % 8
    ]
    refusal = tuple(Refusal)[seed // 8 % len(Refusal)] if kind is Kind.REFUSED else None
    retention = None if kind is Kind.DRAINED else chance.choice((None, *RETENTIONS))
    if kind is Kind.RESISTING or refusal is Refusal.SHADOW:
        retention = FOREVER  # With less the broker deletes data of a shadow topic's source.
    elif refusal is Refusal.TRIMMED:
        retention = None
    drained = kind is Kind.DRAINED
    topics = [_topic(chance, number, drained=drained) for number in range(TOPICS)]
    if refusal is Refusal.TRIMMED:
        topics[chance.randrange(TOPICS)] = GeneratedTopic("trimmed", 30, 10, compaction=Compaction.TRIMMED, tail=1)
    elif refusal is Refusal.TRANSACTIONS:
        topics[chance.randrange(TOPICS)] = GeneratedTopic(
            "paid", 30, 10, transactions=True, unloaded=chance.random() < 0.7
        )
    return GeneratedNamespace(
        seed=seed,
        kind=kind,
        refusal=refusal,
        retention=retention,
        ttl=chance.choice((None, None, TWO_HOURS)),
        limits=_limits(chance, refusal, drained=drained),
        topics=tuple(topics),
    )


def _limits(chance: random.Random, refusal: Refusal | None, *, drained: bool) -> tuple[Limit, ...]:
    limits = {limit.path: limit for limit in chance.sample(HARMLESS_LIMITS, chance.randint(0, 4))}
    if drained:
        # Not the types: a broker with transactions reads their snapshots as Exclusive, and closes a topic without.
        permitted = (REFUSING_LIMITS[Refusal.SUBSCRIPTIONS], REFUSING_LIMITS[Refusal.ENCRYPTION])
        refusing = chance.sample(permitted, chance.randint(0, 2))
    else:
        refusing = [REFUSING_LIMITS[refusal]] if refusal in REFUSING_LIMITS else []
    return tuple((limits | {limit.path: limit for limit in refusing}).values())


def _topic(chance: random.Random, number: int, *, drained: bool) -> GeneratedTopic:
    messages = chance.choice((0, 1, 12, 30))
    compaction = Compaction.NONE
    if not drained and messages:
        compaction = chance.choices((Compaction.NONE, Compaction.DONE, Compaction.LATER), (6, 3, 1))[0]
    tail = chance.choice((0, 0, 5)) if compaction is not Compaction.NONE else 0
    encrypted = chance.random() < 0.1
    retention = None if drained or chance.random() < 0.7 else chance.choice(RETENTIONS)
    # A broker deletes a full ledger that is compacted at any time where no retention keeps it.
    log_stays = retention is not None or compaction is not Compaction.DONE
    topic = GeneratedTopic(
        name=f"topic-{number}",
        partitions=chance.choice((0, 0, 2)),
        retention=retention,
        ttl=chance.choice((None, None, TWO_HOURS)),
        deduplicated=chance.random() < 0.15,
        subscriptions=_subscriptions(chance, messages, drained=drained),
        messages=messages,
        keys=chance.choice((1, 3, 10)),
        # A client without the key gets an encrypted batch as one message without keys.
        batched=not encrypted and chance.random() < 0.3,
        compressed=chance.random() < 0.3,
        encrypted=encrypted,
        delayed=0 if drained else chance.choice((0, 0, 4)),
        tombstones=chance.random() < 0.3,
        compaction=compaction,
        tail=tail,
        unloaded=chance.random() < 0.4 and log_stays,
        terminated=chance.random() < 0.15 and log_stays,
    )
    # A client sends a delayed message before the batch that it interrupts, which deduplication drops then.
    return replace(topic, batched=False) if topic.deduplicated and topic.delayed else topic


def _subscriptions(chance: random.Random, messages: int, *, drained: bool) -> tuple[Subscription, ...]:
    names = ("archive", "billing", "a b/c?")[: chance.choice((0, 1, 1, 2, 3))]
    if drained:
        return tuple(Subscription(name, messages) for name in names)
    subscriptions = []
    for name in names:
        read = chance.choice((0, messages // 3, messages))
        skipped = chance.choice((0, 0, 2)) if messages - read > 3 else 0
        subscriptions.append(Subscription(name, read, skipped))
    return tuple(subscriptions)
