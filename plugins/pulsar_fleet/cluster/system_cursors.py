"""Names that brokers keep for themselves among cursors, subscriptions and producers (pure).

Observed with 4.2.4. By the broker's code, transactions keep `__pending_ack_state` in a ledger of its own, not in the
topic.
"""

from __future__ import annotations

COMPACTION = "__compaction"
DEDUPLICATION = "pulsar.dedup"

REPLICATOR = "pulsar.repl"
"""The broker's default for `replicatorPrefix`."""


def replicator_cursor(cluster: str) -> str:
    """The cursor that says up to where a topic was replicated to a cluster."""
    return f"{REPLICATOR}.{cluster}"


def is_system_cursor(name: str) -> bool:
    """Whether no application can consume from it.

    A broker takes every name that begins with `pulsar.repl` for a replicator's, `pulsar.replay` too: it refuses their
    consumers, lists them no more once the topic was unloaded, and cannot delete them then.
    """
    return name in (COMPACTION, DEDUPLICATION) or name.startswith(REPLICATOR)


def is_replicator(producer: str) -> bool:
    """Whether a producer is another cluster's replicator, `pulsar.repl.<cluster>`, or feeds a shadow topic.

    A producer of an application may be called `pulsar.replay`.
    """
    return producer.startswith((f"{REPLICATOR}.", f"{REPLICATOR}-"))
