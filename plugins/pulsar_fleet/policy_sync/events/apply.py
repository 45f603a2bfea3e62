"""Apply what other clusters published: planned and written with all guards, read back, and only then acknowledged."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pulsar_fleet.cluster.errors import InvalidRequest, NotFound, PreconditionFailed
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.apply.outcome import Applied, Outcome
from pulsar_fleet.planning.apply.secrets import read_secrets
from pulsar_fleet.planning.diff_entry import Resource, same
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.policy_sync.events.batch import Batch
from pulsar_fleet.policy_sync.events.event_topic import Received
from pulsar_fleet.policy_sync.events.last_updated import write_stamps
from pulsar_fleet.policy_sync.events.participant import Ledgered, Site
from pulsar_fleet.policy_sync.events.publish import certain, seen
from pulsar_fleet.policy_sync.events.resolve import Asked, Decided, asked, decide, lost_edits, outstanding
from pulsar_fleet.policy_sync.events.versions import Known
from pulsar_fleet.policy_sync.merge.compare import Compared
from pulsar_fleet.policy_sync.merge.merge_field import Decision, Rule
from pulsar_fleet.policy_sync.merge.merge_resource import Merged, Side
from pulsar_fleet.policy_sync.merge.plan import Target, plan_repair, topics_needed
from pulsar_fleet.policy_sync.merge.scan import Observed
from pulsar_fleet.policy_sync.merge.view import Item, View
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot

log = logging.getLogger(__name__)

PROCEDURE = "sync_metadata"
_SHAPELESS = (AttributeError, KeyError, TypeError, ValueError)
"""What comes of a value that no policy can have: an event may hold anything."""


async def apply_received(site: Site, received: Sequence[Received]) -> Batch:
    """Apply events, then acknowledge them; the same ones again have no effect.

    Several events of one resource are written once, as their newest fields say. What cannot be applied is put away with
    its reason and does not stop the rest; what may work later is given back.
    """
    batch = Batch.of(received, site.request.means, site.ledger.in_migration())
    before = site.remembered(list(batch.events))
    batch.drop([item for item in batch.events if not _asked(site, batch, item, before.known(item))])
    if batch.events:
        await _apply_each(site, batch)
    for one, reason in batch.refused.items():
        log.warning("%s: event %s is not applied: %s", site.own, one.id, reason)
    await site.topic.put_away(batch.refused)
    await site.topic.acknowledge([*batch.useless, *batch.applied, *batch.refused])
    await site.topic.give_back(batch.later)
    return batch


async def _apply_each(site: Site, batch: Batch) -> None:
    """Apply all at once; where a value cannot be meant, resource by resource, so that it stops no other."""
    try:
        await _apply(site, batch)
    except (*_SHAPELESS, InvalidRequest, PreconditionFailed, NotFound) as error:
        items = list(batch.events)
        if len(items) == 1:
            wrong = "a value has not the shape that its policy has: " if isinstance(error, _SHAPELESS) else ""
            batch.refuse(items[0], f"{items[0][0].value} {items[0][1]}: {wrong}{error}")
            return
        for item in items:
            part = batch.take(item)
            await _apply_each(site, part)
            batch.add(part)


async def _apply(site: Site, batch: Batch) -> None:
    with site.in_hand(batch.events):
        await _apply_in_hand(site, batch)


async def _apply_in_hand(site: Site, batch: Batch) -> None:
    """Look, keep what is about to be written, write, look again: after a crash no copy is taken for a change."""
    looked = await _look(site, batch)
    if not batch.events:
        return
    known = _known(site, batch, looked)
    wanted = {item: _asked(site, batch, item, known[item]) for item in batch.events}
    lost = _lost(site, batch, wanted, known)
    decided = _decide(wanted, looked, known)
    if not site.keep(looked.ledgered, {item: known[item].awaiting(one.marks) for item, one in decided.items()}):
        batch.postpone(batch.events)
        return
    plan = await _plan(site, looked, decided, _makers(site, batch))
    applied = await _carry_out(site, plan) if plan.changes else Applied(plan.id, plan.target, ())
    batch.written += applied.counts()[Outcome.APPLIED]
    looked = await _look(site, batch)
    known = {item: one.awaiting({}) for item, one in _known(site, batch, looked).items()}
    if not site.keep(looked.ledgered, known):
        batch.postpone(batch.events)
    batch.stamped += await write_stamps(site, looked.observed, {item: known[item] for item in batch.events})
    for item in list(batch.events):
        left = outstanding(wanted[item], known[item], site.request.order)
        batch.lost += len(lost[item] - set(left))
        if left and _may_work_later(item, applied):
            batch.postpone([item])
        else:
            batch.settle(item, left, _reason(item, decided[item], plan, applied))


@dataclass(frozen=True, slots=True)
class _Looked:
    """A cluster at a time, with what was known of it just before."""

    ledgered: Ledgered
    observed: Observed
    view: View


async def _look(site: Site, batch: Batch) -> _Looked:
    """What was known before the look, so that nobody's later knowledge meets it; what cannot be read comes again."""
    ledgered = site.remembered(list(batch.events))
    observed = await site.look_at(list(batch.events))
    view = site.view(observed)
    batch.postpone([item for item in batch.events if not view.knows(item)])
    return _Looked(ledgered, observed, view)


def _asked(site: Site, batch: Batch, item: Item, known: Known | None) -> Asked:
    return asked(batch.of_item(item), known or Known(), site.request.order)


def _lost(
    site: Site, batch: Batch, wanted: Mapping[Item, Asked], known: Mapping[Item, Known]
) -> dict[Item, frozenset[str]]:
    """The edits that are about to be taken back, said before they are gone."""
    found = {
        item: lost_edits(one, batch.of_item(item), known[item], site.own, site.request.order)
        for item, one in wanted.items()
    }
    for item, names in found.items():
        if names:
            log.warning("%s: edits of %s in %s lose to a newer document", site.own, ", ".join(sorted(names)), item[1])
    return found


def _known(site: Site, batch: Batch, looked: _Looked) -> dict[Item, Known]:
    """What is known after a look; of a topic that is not there, nothing new."""
    before = {item: looked.ledgered.known(item) or Known() for item in batch.events}
    items = certain(looked.view, batch.events)
    return before | seen(site, looked.observed, looked.view, looked.ledgered, items)


def _decide(wanted: Mapping[Item, Asked], looked: _Looked, known: Mapping[Item, Known]) -> dict[Item, Decided]:
    return {
        item: decide(item, one, known[item], there=looked.view.values(item) is not None) for item, one in wanted.items()
    }


def _makers(site: Site, batch: Batch) -> tuple[Snapshot, ...]:
    """The namespaces as the clusters that published them last would make them."""
    named = [item for item in batch.events if item[0] is Resource.NAMESPACE]
    newest = [max(batch.of_item(item), key=lambda event: event.stamp) for item in named]
    return tuple(
        Snapshot(
            cluster=event.source_cluster,
            began="",
            ended="",
            key_id=site.seal.key_id,
            namespaces=(NamespaceState(event.resource_name, event.made_with),),
        )
        for event in newest
    )


async def _plan(site: Site, looked: _Looked, decided: Mapping[Item, Decided], makers: Sequence[Snapshot]) -> Plan:
    """What has to be written, with the hazards that it has on this cluster."""
    compared = [_compared(looked.view, item, one) for item, one in decided.items() if one.values or one.create]
    observed = await site.with_topics(looked.observed, topics_needed(compared, site.own))
    target = Target(held=observed.snapshot, topics=observed.topics)
    return plan_repair(compared, target, makers, source="events of metadata")


def _compared(view: View, item: Item, decided: Decided) -> Compared:
    own, held = view.cluster, view.values(item)
    values = {**(held or {}), **decided.values}
    decisions = {
        name: Decision(value=value, rule=Rule.CARRIED)
        for name, value in decided.values.items()
        if not same((held or {}).get(name), value)
    }
    absent = (own,) if held is None else ()
    in_topic = item[0] is Resource.TOPIC_POLICY
    return Compared(
        item=item,
        merged=Merged(values={name: value for name, value in values.items() if value is not None}, decisions=decisions),
        sides=() if held is None else (Side(cluster=own, values=held, seen={}),),
        missing=() if in_topic else absent,
        elsewhere=absent if in_topic else (),
    )


async def _carry_out(site: Site, plan: Plan) -> Applied:
    """Each batch is a run of its own in the ledger, so that it can be undone by itself."""
    run_id = f"{PROCEDURE}/{site.own}/{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
    site.ledger.start_run(run_id, PROCEDURE, {"target": site.admin.connection.name, "plan": plan.id})
    found: dict[str, str] = {}
    for peer in site.peers:
        found |= await read_secrets(plan, peer, site.seal)
    applied = await apply_plan(plan, site.admin, site.ledger, run_id, seal=site.seal, secrets=found)
    site.ledger.finish_run(run_id, "succeeded" if applied.complete else "failed")
    return applied


def _may_work_later(item: Item, applied: Applied) -> bool:
    mine = (result for result in applied.not_in_place() if result.change.name == item[1])
    return any(result.passing or result.outcome is Outcome.CONFLICT for result in mine)


def _reason(item: Item, decided: Decided, plan: Plan, applied: Applied) -> str:
    failed = [f"{one.change.label}: {one.detail}" for one in applied.not_in_place() if one.change.name == item[1]]
    left = [f"{one.field or item[1]}: {one.reason}" for one in plan.left_alone if one.name == item[1]]
    said = [one for one in (decided.refused, *failed, *left) if one]
    return "; ".join(said) or f"{item[0].value} {item[1]} does not show what was written."
