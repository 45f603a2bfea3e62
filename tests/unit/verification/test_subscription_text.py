"""The text of a comparison of subscriptions begins with how many are equal, different and inconclusive."""

from __future__ import annotations

from pulsar_fleet.verification.messages.verdict import Verdict
from pulsar_fleet.verification.subscriptions.report import subscription_text
from pulsar_fleet.verification.subscriptions.verdict import (
    NamespaceSubscriptions,
    SubscriptionVerdict,
    SubscriptionVerification,
    TopicSubscriptions,
)


def topic(name: str, *verdicts: Verdict) -> TopicSubscriptions:
    compared = tuple(
        SubscriptionVerdict(subscription=f"s{number}", verdict=verdict, reason="why")
        for number, verdict in enumerate(verdicts)
    )
    return TopicSubscriptions(topic=name, topic_verdict=Verdict.EQUAL, subscriptions=compared)


UNREAD = TopicSubscriptions(topic="t3", topic_verdict=Verdict.INCONCLUSIVE, reason="it does not answer")


def told(*topics: TopicSubscriptions) -> list[str]:
    verification = SubscriptionVerification("blue", "green", (NamespaceSubscriptions("acme/orders", topics),))
    return subscription_text(verification).splitlines()


def test_subscriptions_are_counted_by_verdict() -> None:
    lines = told(topic("t1", Verdict.EQUAL, Verdict.EQUAL, Verdict.DIFFERENT), topic("t2", Verdict.INCONCLUSIVE))
    assert lines[0] == "Subscriptions: 2 equal, 1 different, 1 inconclusive"


def test_a_topic_that_could_not_be_read_counts_as_one() -> None:
    assert told(topic("t1", Verdict.EQUAL), UNREAD)[0] == "Subscriptions: 1 equal, 0 different, 1 inconclusive"


def test_topics_without_a_subscription_count_nothing() -> None:
    assert told(topic("t1"))[0] == "Subscriptions: 0 equal, 0 different, 0 inconclusive"
