"""Topics on blue that do not move as the others: shadows, their sources, scalable ones, and those that ended (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.migration.preflight.gates.catalogue import Owner, blocks, warns
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.preflight.findings import Finding

_SHADOW = blocks(
    "shadow-stays",
    Owner.APPLICATION,
    "No broker terminates it: its consumers stay on {blue}, where its source gets no more messages.",
)
_SERVED = blocks(
    "read-only-copy-ends",
    Owner.APPLICATION,
    "Its readers on {blue} get nothing more: its next messages are stored on {green} only.",
)
_SCALABLE = blocks(
    "scalable-topics-stay",
    Owner.APPLICATION,
    "The cut-over would terminate their segments on {blue}, and no procedure moves such a topic to {green}.",
    never_waived="the flag terminates their segments, and their clients find no such topics on {green}.",
)
_ENDED = warns(
    "topic-ended",
    Owner.APPLICATION,
    "Its consumers read it to its end and go to {green}, where the cut-over terminates it too.",
)


def no_shadow_topic_moves(view: View) -> Iterator[Finding]:
    """Shadow topics of the namespaces that move.

    Observed on 4.2.4: under the flag a shadow topic stays open, and its consumers stay connected to it.
    """
    for facts in view.moving:
        for topic, source in facts.shadows.items():
            yield _SHADOW.finding(
                str(topic),
                f"shadow topic of {source}",
                f"connect its consumers to {source}, and take the shadow topic away as docs/serve_read_only.md says: a "
                "deletion by hand can delete data of its source. Waive this to leave it on "
                f"{view.blue.name}; its clients stay there.",
            )


def no_topic_with_readers_elsewhere_moves(view: View) -> Iterator[Finding]:
    """Sources of shadow topics that stay on blue.

    Observed on 4.2.4: the link goes on, the source on blue gets no more messages, and nothing says so to its readers.
    """
    moving = {facts.namespace for facts in view.moving}
    for row in view.blue.snapshot.topic_policies:
        copies = map(TopicName.parse, row.policies.get("shadowTopics") or ())
        stay = [copy for copy in copies if copy.namespace not in moving]
        if stay and TopicName.parse(row.topic).namespace in moving:
            yield _SERVED.finding(
                row.topic,
                f"served read-only by {listed(map(str, stay))}",
                "agree with its readers when they go to {green}: after the move serve_read_only makes a copy there "
                f"({view.connections[1]}, the same topic and namespace), and they connect to it; the positions of "
                "their subscriptions stay on {blue}. Then waive this.",
            )


def no_scalable_topic_moves(view: View) -> Iterator[Finding]:
    """Scalable topics of the namespaces that move.

    Observed on 5.0.0-M1: under the flag a broker terminates the loaded segments as it does ordinary topics, answers for
    the others that they are already migrated, and goes on listing the scalable topics.
    """
    for facts in view.moving:
        if facts.scalable:
            yield _SCALABLE.finding(
                str(facts.namespace),
                f"{counted(len(facts.scalable), 'scalable topic')} on {view.blue.name}: {listed(facts.scalable)}",
                "leave the namespace out of the run; or let their applications use topics of another namespace, and "
                "delete these topics when no message in them is needed any more.",
            )


def ended_topics_are_reported(view: View) -> Iterator[Finding]:
    """Partitions that their owner has terminated, by namespace."""
    for facts in view.moving:
        if facts.ended:
            yield _ENDED.finding(
                str(facts.namespace),
                f"{counted(len(facts.ended), 'terminated partition')} on {view.blue.name}: "
                f"{listed(map(str, facts.ended))}",
                "nothing.",
            )
