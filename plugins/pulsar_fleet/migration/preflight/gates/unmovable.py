"""Topics on blue that the flag does not move as the others: a shadow, and one that its owner has terminated (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.migration.preflight.gates.catalogue import Owner, blocks, warns
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.preflight.findings import Finding

_SHADOW = blocks(
    "shadow-stays",
    Owner.APPLICATION,
    "No broker terminates it: its consumers stay on blue, where its source gets no more messages.",
)
_ENDED = warns(
    "topic-ended",
    Owner.APPLICATION,
    "Its consumers read it to its end and go to green, where the cut-over terminates it too.",
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
