"""The names of system cursors and replicators, which are reserved by brokers (pure).

Observed with 4.2.4. By the broker's code, the cursor `__pending_ack_state` of transactions is in a ledger of its own,
not in the topic.
"""

from __future__ import annotations

COMPACTION = "__compaction"
DEDUPLICATION = "pulsar.dedup"

REPLICATOR = "pulsar.repl"
"""The broker's default for `replicatorPrefix`."""


def replicator_cursor(cluster: str) -> str:
    """The cursor that stores how far a topic was replicated to a cluster."""
    return f"{REPLICATOR}.{cluster}"


def is_system_cursor(name: str) -> bool:
    """Whether a cursor is a system cursor, from which no application can consume.

    A broker treats every name that begins with `pulsar.repl` as a replicator's, even `pulsar.replay`: it refuses their
    consumers; once the topic was unloaded, it does not list them and cannot delete them.
    """
    return name in (COMPACTION, DEDUPLICATION) or name.startswith(REPLICATOR)


def is_replicator(producer: str) -> bool:
    """Whether a producer is another cluster's replicator, `pulsar.repl.<cluster>`, or writes to a shadow topic.

    An application's producer may have the name `pulsar.replay`.
    """
    return producer.startswith((f"{REPLICATOR}.", f"{REPLICATOR}-"))
