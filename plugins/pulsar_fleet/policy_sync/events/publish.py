"""Find what was changed on a cluster by others than us, and publish it (client)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import aclosing
from dataclasses import dataclass

from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.event import MetadataChangeEvent
from pulsar_fleet.policy_sync.events.last_updated import write_stamps
from pulsar_fleet.policy_sync.events.participant import Ledgered, Site, shown, times
from pulsar_fleet.policy_sync.events.versions import Known, Look, note
from pulsar_fleet.policy_sync.merge.plan import made_with
from pulsar_fleet.policy_sync.merge.scan import Observed
from pulsar_fleet.policy_sync.merge.view import Item, View, place

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Published:
    """How many events were sent, and how many namespaces stamped."""

    events: int = 0
    stamped: int = 0


async def publish_changes(site: Site, *, snapshot: bool = False) -> Published:
    """Look at the cluster and publish each resource that changed, as soon as the part in which it lies is read.

    A change is known before it is published, so one that a crash kept back is published with its time by the next call.
    Nothing more is published when another process was faster to see the same.

    :param snapshot: publish every resource, each field with its original time and source.
    """
    # Read before the look: what another process comes to know meanwhile must not meet values from before that.
    site.begin_look()
    before, looked, done = site.remembered(), set[Item](), Published()
    async with aclosing(site.look()) as parts:
        async for observed in parts:
            view = site.view(observed)
            items = _shown_first(view, before, looked)
            looked.update(items)
            if not await _publish_part(site, _Part(observed, view, items), before, done, snapshot=snapshot):
                return done
    if not site.touched and not before.covers(site.scope()):
        site.keep_scope(before)
    return done


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a look, and the resources about which it tells."""

    observed: Observed
    view: View
    items: Sequence[Item]


def _shown_first(view: View, before: Ledgered, looked: Set[Item]) -> list[Item]:
    """The resources about which this part of a look tells and no earlier one: the last one, that some are gone."""
    here = {name for kind, name in view.items if kind is Resource.NAMESPACE}
    known = (item for item in before.items() if not here or place(item)[1] in here)
    order = {kind: rank for rank, kind in enumerate(Resource)}
    return sorted({*view.items, *known} - looked, key=lambda item: (order[item[0]], item[1]))


async def _publish_part(site: Site, part: _Part, before: Ledgered, done: Published, *, snapshot: bool) -> bool:
    """Whether nobody else was faster."""
    observed, view = part.observed, part.view
    items = _meant(site, observed, view, part.items)
    if unsure := _lost_policies(view, before, items):
        observed = await site.with_topics(observed, unsure)
        view = site.view(observed)
    touched = site.touched
    known = seen(site, observed, view, before, [item for item in certain(view, items) if item not in touched])
    if not site.keep(before, {item: one for item, one in known.items() if one != before.known(item)}):
        log.info("%s: another follower saw the same first", site.own)
        return False
    due = {item: one for item, one in known.items() if snapshot or not one.published}
    done.events += await _publish(site, observed, view, due) if due else 0
    done.stamped += await write_stamps(site, observed, known)
    return True


def seen(site: Site, observed: Observed, view: View, before: Ledgered, items: Iterable[Item]) -> dict[Item, Known]:
    """What is known of resources after a look; before the first whole one a value may have any age."""
    first, found = not before.covers(site.scope()), {}
    for item in items:
        known, values = before.known(item), shown(view, item)
        if known is None and not values:
            continue
        looked = Look(
            values=values,
            now=int(observed.ended * 1000),
            times=times(observed, item),
            first=first,
            whole=site.request.order.whole,
        )
        found[item] = note(known, looked, site.own)
    return found


async def _publish(site: Site, observed: Observed, view: View, looked: Mapping[Item, Known]) -> int:
    """Send resources as they were looked at, tenants first; only then they count as published."""
    ledgered = site.remembered(list(looked))
    mine = {item: one for item, one in looked.items() if one.fields and ledgered.known(item) == one}
    if not mine:
        return 0
    documents = {(Resource.NAMESPACE, one.name): made_with(one.policies) for one in observed.snapshot.namespaces}
    sent = await site.topic.publish(
        MetadataChangeEvent.of(item, shown(view, item), one, documents.get(item, {})) for item, one in mine.items()
    )
    # What an event is applied to meanwhile is published once more, by the next look.
    done = {item: one.as_published() for item, one in mine.items() if not one.published and item not in site.in_work}
    site.keep(ledgered, done)
    return sent


def _meant(site: Site, observed: Observed, view: View, items: Iterable[Item]) -> list[Item]:
    """What travels: not what a migration holds, nor what could not be read."""
    held = site.ledger.in_migration() | {
        one.name for one in observed.snapshot.namespaces if one.policies.get("migrated")
    }
    return [item for item in items if site.request.means(item) and view.knows(item) and place(item)[1] not in held]


def _lost_policies(view: View, before: Ledgered, items: Iterable[Item]) -> set[str]:
    """Namespaces of which only the list of topics tells whether a topic lost its policies or is gone."""
    return {
        place(item)[1]
        for item in items
        if item[0] is Resource.TOPIC_POLICY and item not in view.items and _had_values(before.known(item))
    }


def _had_values(known: Known | None) -> bool:
    return known is not None and any(mark.digest for mark in known.fields.values())


def certain(view: View, items: Iterable[Item]) -> list[Item]:
    """Without topics that are gone: that their policies are gone with them is no change of these."""
    return [item for item in items if item[0] is not Resource.TOPIC_POLICY or view.values(item) is not None]
