"""Read in which partitions of blue transactions were used, also before their topics were loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import PartialReads
from pulsar_fleet.cluster.admin.read_problems import Note, Problem
from pulsar_fleet.cluster.errors import FleetError, NotFound
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.snapshot.model import Snapshot

_SETTING = "transactionCoordinatorEnabled"
_RECOVERING, _UNUSED = frozenset({"None", "Initializing"}), frozenset({"NoSnapshot", "Unused"})
_SECONDS, _POLL_SECONDS = 30.0, 0.3


def may_transact(snapshot: Snapshot) -> bool:
    """Whether any broker of the cluster has transactions, or may have them: its settings were not read."""
    return not snapshot.brokers or any(broker.configuration.get(_SETTING) != "false" for broker in snapshot.brokers)


async def read_transacted(
    blue: AdminClient, partitions: Sequence[TopicName]
) -> tuple[frozenset[TopicName], tuple[Note, ...]]:
    """The partitions in which transactions were used at any time, and a note for each that could not be read.

    A topic's counts begin when it is loaded; a snapshot of its transactions stays. Observed on 4.2.4: `NoSnapshot` is
    the state of a topic without any transaction, `Ready` that of one with, after it was loaded again too.

    Calls: one for each partition, which must be loaded; more while brokers recover it.
    """
    attempts = PartialReads()
    states = await asyncio.gather(*(_state(blue, topic) for topic in partitions))
    transacted: set[TopicName] = set()
    for topic, state in zip(partitions, states, strict=True):
        if isinstance(state, FleetError):
            attempts.note(str(topic), Problem.UNREADABLE, str(state))
        elif state in _RECOVERING:
            attempts.note(str(topic), Problem.UNREADABLE, f"its transactions are in the state {state!r}")
        elif state not in _UNUSED:
            transacted.add(topic)
    return frozenset(transacted), tuple(attempts.take_notes())


async def _state(blue: AdminClient, topic: TopicName) -> str | FleetError:
    """The state of its transaction buffer; `Unused` for a deleted topic, and from a broker without transactions."""
    loop = asyncio.get_running_loop()
    end, path = loop.time() + _SECONDS, topic.path.partition("/")[2]
    try:
        while True:
            document = await blue.get_v3(f"/transactions/transactionBufferStats/{path}", answered_retry_seconds=0)
            state = str((document or {}).get("state"))
            if state not in _RECOVERING or loop.time() > end:
                return state
            await asyncio.sleep(_POLL_SECONDS)
    except NotFound:
        return "Unused"
    except FleetError as error:
        return "Unused" if f"{_SETTING}=true" in str(error) else error
