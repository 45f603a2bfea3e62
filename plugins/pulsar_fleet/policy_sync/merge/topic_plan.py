"""The differences of a partitioned topic that a plan has to remove, and what it leaves alone (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pulsar_fleet.planning.diff_entry import Difference, Resource, Side
from pulsar_fleet.planning.plan import Action, LeftAlone, Plan
from pulsar_fleet.policy_sync.merge.compare import ComparedResource
from pulsar_fleet.policy_sync.merge.topic_fields import (
    PARTITIONS,
    PROPERTIES,
    SCHEMAS,
    properties_of,
    topic_document,
)


def topic_creation(resource: ComparedResource) -> Iterator[Difference]:
    """Create the topic with its partitions and properties, then register its schemas."""
    name, values = resource.item[1], resource.merged.values
    yield Difference(Resource.TOPIC, name, "", Side.MISSING, topic_document(values), None)
    if SCHEMAS in values:
        yield Difference(Resource.SCHEMA, name, "", Side.MISSING, values[SCHEMAS], None)


def topic_differences(
    resource: ComparedResource, cluster: str, drifting: Collection[str]
) -> Iterator[Difference | LeftAlone]:
    """The differences of a topic that the cluster has; a schema history that was deleted stays deleted."""
    name, merged = resource.item[1], resource.merged.values
    live = next(side.values for side in resource.sides if side.cluster == cluster)
    if PARTITIONS in drifting:
        yield Difference(Resource.TOPIC, name, PARTITIONS, Side.DIFFERENT, merged[PARTITIONS], live[PARTITIONS])
    if any(field not in (PARTITIONS, SCHEMAS) for field in drifting):
        both = (properties_of(values) for values in (merged, live))
        yield Difference(Resource.TOPIC, name, PROPERTIES, Side.DIFFERENT, *both)
    if SCHEMAS in drifting:
        agreed = resource.base.document.get(SCHEMAS) if resource.base else None
        if merged.get(SCHEMAS) is None or (agreed and live.get(SCHEMAS) is None):
            reason = "its schemas were deleted on one side: delete them on the others by hand, or register them again"
            yield LeftAlone(Resource.SCHEMA, name, "", reason)
        else:
            side = Side.DIFFERENT if SCHEMAS in live else Side.MISSING
            yield Difference(Resource.SCHEMA, name, "", side, merged[SCHEMAS], live.get(SCHEMAS))


def unpartitioned_text(item_name: str, holders: Collection[str], cluster: str) -> str:
    """Why a partitioned topic is not created on a cluster that has it without partitions, and what to do."""
    return (
        f"{item_name} is partitioned on {', '.join(sorted(holders))} and has no partitions on {cluster}: consume what "
        f"is stored on {cluster}, delete the topic there, and it is created with its partitions"
    )


def growths(plan: Plan) -> frozenset[str]:
    """The ids of the changes that add partitions: who lets partitioned topics be synchronised has allowed these."""
    return frozenset(change.id for change in plan.changes if change.action is Action.GROW)
