"""Create on green everything that blue's clients will need, before any client is redirected."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import NotFound, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName, with_parent
from pulsar_fleet.cluster.policies.effective import is_set
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.subscription_cursors import subscription_cursors
from pulsar_fleet.migration.artefacts import GREEN_PLAN, MADE_AGAIN, RESERVED_SUBSCRIPTIONS
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Move, Moves, Phase, Strategy
from pulsar_fleet.migration.prepare.freeze import find_original_settings, missing_topics, recreate_missing
from pulsar_fleet.migration.prepare.overrides import with_original_tenants
from pulsar_fleet.planning.apply.apply import apply_plan, read_secrets
from pulsar_fleet.planning.apply.outcome import PlanResult
from pulsar_fleet.planning.build import plan_changes, require_complete
from pulsar_fleet.planning.changes.namespaces import STRATEGY, setting
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Change, Hazard, Plan
from pulsar_fleet.planning.translation import without_way_back
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader


async def reserve_subscriptions(
    blue: AdminClient, green: AdminClient, topic: TopicName, *, consumed: bool = False
) -> tuple[str, ...]:
    """Create on green, at the earliest position, the idle subscriptions with a backlog that it lacks; their names.

    They keep what is replicated until their cursors are set. Call it before the first entry is replicated; a second
    call creates nothing.

    :param consumed: create all, also those with consumers: these will come without a redirect, at any time.
    """
    stats, internal, green_stats = await asyncio.gather(
        blue.stats(topic, precise=False), blue.internal_stats(topic), green.stats(topic, precise=False)
    )
    created = []
    present = TopicStats.of(topic, green_stats).subscriptions
    cursors = subscription_cursors(Ledgers.of(internal), TopicStats.of(topic, stats), internal)
    for name, cursor in cursors.items():
        if (consumed or (cursor.consumers == 0 and cursor.unread)) and name not in present:
            await green.create_subscription(topic, name)
            created.append(name)
    return tuple(created)


def store_reserved_subscriptions(run: Run, reserved: Mapping[TopicName, Sequence[str]]) -> None:
    """Add to the stored names of reserved subscriptions; an abort deletes them."""
    subscriptions = {topic: {*names} for topic, names in read_reserved_subscriptions(run).items()}
    for topic, names in reserved.items():
        subscriptions.setdefault(topic, set()).update(names)
    document = {str(topic): sorted(names) for topic, names in subscriptions.items() if names}
    run.artefacts.write_json(run.id, RESERVED_SUBSCRIPTIONS, document)


def read_reserved_subscriptions(run: Run) -> dict[TopicName, list[str]]:
    """Partition → the subscriptions that this run created on green to keep its backlog."""
    document = run.stored(RESERVED_SUBSCRIPTIONS) or {}
    return {TopicName.parse(topic): list(names) for topic, names in document.items()}


_DELETED_WITH_TOPICS = frozenset({Resource.TOPIC, Resource.SCHEMA, Resource.TOPIC_POLICY, Resource.SUBSCRIPTION})
_GRANTS, _OF_TOPICS = "auth_policies", "destination_auth"


async def prepare(sides: Sides, run: Run, moves: Moves) -> JsonObject:
    """Make green's namespaces equal to blue's: tenants, policies, topics, schemas, topic policies, subscriptions.

    It writes only what is missing or differs, and reads it back; a second call changes nothing. After blue was frozen
    it still copies blue's original settings. Returns counts. Where applications use green already, its settings and
    topics are theirs: nothing is changed.

    :raises PreconditionFailed: a resource could not be read, or a change failed or needs the operator's permission; the
        message names it.
    """
    waiting = [move for move in moves.moves if not move.strategy.is_moved_before]
    done: JsonObject = {"changes": 0}
    if waiting:
        async with sides.open() as (blue, green):
            plan, secrets = await _plan(blue, green, run, waiting)
            run.artefacts.write_json(run.id, GREEN_PLAN, plan.to_json())
            done = {"plan": plan.id, "changes": len(plan.changes), **(await _apply(plan, secrets, green, run)).counts()}
    for move in moves.moves:
        run.ledger.enter_phase(run.id, str(move.namespace), Phase.PREPARED, done if move in waiting else {})
    return done


async def prepare_deleted(
    blue: AdminClient, green: AdminClient, run: Run, moves: Iterable[Move], *, used: bool = False
) -> None:
    """Make on green what its broker has deleted as inactive since `prepare`: topics, and what is deleted with them.

    With a topic a broker deletes its policies, its schemas and the grants on it (observed). Nothing else on green is
    changed, where somebody may have set other values since. Two calls for each namespace that lacks nothing, and with a
    pass over its topic policies on both clusters three; a snapshot of both for others. A second call goes on where an
    interrupted one ended.

    :param used: applications have begun to use green: what a topic lacks there may be their owner's choice.
    :raises PreconditionFailed: as `prepare`.
    """
    interrupted = run.stored(MADE_AGAIN) or {}
    # What `prepare` has not made was not made again by anybody.
    looking = not used and run.artefacts.find(run.id, GREEN_PLAN) is not None
    for move in moves:
        if move.strategy.is_moved_before:
            continue
        name = str(move.namespace)
        missing = {*map(str, await missing_topics(green, move.namespace, move.topics)), *interrupted.get(name, ())}
        missing |= await _made_again_by_others(blue, green, move) if looking else set()
        if not missing:
            continue
        # The first thing made would hide that the rest is missing.
        interrupted[name] = sorted(missing)
        run.artefacts.write_json(run.id, MADE_AGAIN, interrupted)
        plan, secrets = await _plan(blue, green, run, [move])
        await _apply(of_topics(plan, name, missing), secrets, green, run, again=True)
        await recreate_missing(green, move.namespace, move.topics, blue)
        del interrupted[name]
        run.artefacts.write_json(run.id, MADE_AGAIN, interrupted)


async def _made_again_by_others(blue: AdminClient, green: AdminClient, move: Move) -> set[str]:
    """The topics that have policies on blue and none on green: a replicator or a client has made them again."""
    async with TopicPolicyReader(blue, None) as on_blue, TopicPolicyReader(green, None) as on_green:
        rows = await asyncio.gather(on_blue.read(move.namespace), on_green.read(move.namespace))
    with_policies = [{row.topic for row in side if any(map(is_set, row.policies.values()))} for side in rows]
    return {str(topic) for topic in move.topics if topic.persistent} & (with_policies[0] - with_policies[1])


def of_topics(plan: Plan, namespace: str, topics: Collection[str]) -> Plan:
    """What a plan makes of these topics of a namespace, and nothing that it takes away (pure)."""

    def makes(change: Change) -> bool:
        deleted = change.resource in _DELETED_WITH_TOPICS and with_parent(change.name).intersection(topics)
        return bool(deleted) and change.after is not None

    def sets(change: Change, field: str) -> bool:
        return (change.name, change.field) == (namespace, field)

    # A history is registered between two changes of the strategy: every schema is accepted, then those of before.
    registers = any(change.resource is Resource.SCHEMA and makes(change) for change in plan.changes)
    opens = registers and sum(sets(change, STRATEGY) for change in plan.changes) > 1
    kept = [change for change in plan.changes if makes(change) or (opens and sets(change, STRATEGY))]
    kept += [grant for change in plan.changes if sets(change, _GRANTS) for grant in _grants_on(topics, change)]
    return replace(plan, changes=tuple(kept))


def _grants_on(topics: Collection[str], change: Change) -> Iterator[Change]:
    """A change of a namespace's grants without all that is not on these topics."""
    before, after = ((side or {}).get(_OF_TOPICS) or {} for side in (change.before, change.after))
    added = {topic: granted for topic, granted in after.items() if with_parent(topic).intersection(topics)}
    if added:
        merged = {**(change.before or {}), _OF_TOPICS: {**before, **added}}
        yield setting(BY_FIELD[_GRANTS], change.name, change.before, merged, "deleted with its topic")


async def _plan(
    blue: AdminClient, green: AdminClient, run: Run, moves: Sequence[Move]
) -> tuple[Plan, Mapping[str, str]]:
    """What green lacks of namespaces, with the secrets that are written."""
    selection = Selection(namespaces=frozenset(move.namespace for move in moves))
    redactor = open_redactor()
    # Replicated messages would fill a subscription at the earliest position: the cut-over sets those cursors.
    subscriptions = any(move.strategy is Strategy.REDIRECT for move in moves)
    on_blue, on_green = await asyncio.gather(
        collect(blue, selection, redactor=redactor, must_exist=True, load_topics=subscriptions),
        collect(green, selection, redactor=redactor, load_topics=subscriptions),
    )
    if original := find_original_settings(run):
        on_blue = with_original_tenants(on_blue, original)
    require_complete(on_blue)
    require_complete(on_green)
    plan = plan_changes(without_way_back(on_blue, on_green), on_green, subscriptions=subscriptions)
    return plan, await read_secrets(plan, blue, redactor)


async def _apply(
    plan: Plan, secrets: Mapping[str, str], green: AdminClient, run: Run, *, again: bool = False
) -> PlanResult:
    allow = await _harmless(plan, green)
    if refused := [change for change in plan.needing_permission() if change.id not in allow]:
        raise PreconditionFailed(_refused(plan.target, refused))
    applied = await apply_plan(
        plan, green, run.ledger, run.id, redactor=open_redactor(), allow=allow, secrets=secrets, again=again
    )
    if not applied.complete:
        raise PreconditionFailed(_incomplete(applied))
    return applied


async def _harmless(plan: Plan, green: AdminClient) -> frozenset[str]:
    """The irreversible policies of topics without a message on green, such as those that a failback has recreated."""
    policies = [
        change
        for change in plan.changes
        if change.resource is Resource.TOPIC_POLICY and change.hazard is Hazard.IRREVERSIBLE
    ]
    topics = {change.name for change in policies}
    empty = {name for name in topics if not await _entries(green, TopicName.parse(name))}
    return frozenset(change.id for change in policies if change.name in empty)


async def _entries(green: AdminClient, topic: TopicName) -> int:
    entries = 0
    for partition in topic.partitions((await green.partition_metadata(topic)).partitions):
        with suppress(NotFound):  # an inactive partition that the broker has deleted has none
            entries += int((await green.internal_stats(partition))["numberOfEntries"])
    return entries


def _refused(green: str, changes: Sequence[Change]) -> str:
    listed = "\n".join(
        f"  {change.label}: {change.before} → {change.after}: {change.reason}" for change in changes[:20]
    )
    return (
        f"{counted(len(changes), 'change')} of {green} could delete what is stored there; nothing was changed there. "
        f"Decide which values are to apply, set them on both clusters, then clear this task.\n{listed}"
    )


def _incomplete(applied: PlanResult) -> str:
    open_results = applied.not_in_place()
    listed = "\n".join(
        f"  {result.outcome.value:10} {result.change.id}  {result.change.label}: {result.detail}"
        for result in open_results[:20]
    )
    return (
        f"{len(open_results)} of {len(applied.results)} changes are not in place on {applied.target}; nothing else was "
        f"changed. Correct these, then clear this task.\n{listed}"
    )
