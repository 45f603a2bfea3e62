"""Whether carried subscriptions stand where it was said they would (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from pulsar_fleet.migration.subscriptions.checkpoint import Placed


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What a comparison of both sides found for one subscription of one partition.

    :param by_entries: whether `redelivered` and `skipped` count entries; else messages.
    :param settings: properties and the like that differ, in words.
    :param reason: why it could not be compared, if it could not.
    """

    redelivered: int
    skipped: int
    by_entries: bool = True
    settings: tuple[str, ...] = ()
    reason: str = ""


Name = tuple[str, str]
"""Partition and subscription."""


def misplaced(
    placed: Collection[Placed], found: Mapping[Name, Compared], consumed: Collection[Name]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Subscriptions that do not continue as stated, in words, and those that somebody consumes already.

    A consumer on green that has taken something makes the sides differ: then nothing can be said any more.
    """
    wrong: list[str] = []
    moved: list[str] = []
    for one in placed:
        name = (one.topic, one.subscription)
        if name in consumed:
            moved.append(f"{one.subscription!r} of {one.topic}")
        else:
            wrong += (f"{one.subscription!r} of {one.topic}: {what}" for what in _differences(one, found.get(name)))
    return tuple(wrong), tuple(moved)


def _differences(stated: Placed, found: Compared | None) -> Iterator[str]:
    if found is None:
        # Blue's broker removes one that has read everything within a check period of the switch.
        if stated.unread:
            yield "it was not found on both sides"
        return
    if found.reason:
        yield found.reason
        return
    if found.skipped:
        yield f"{found.skipped:,} would be skipped"
    # In messages a stated number of entries is a lower bound: a batch has one or more.
    as_stated = found.redelivered == stated.redelivered or (
        not found.by_entries and found.redelivered > stated.redelivered > 0
    )
    if not as_stated:
        yield f"{found.redelivered:,} would come again, stated were {stated.redelivered:,}"
    yield from found.settings
