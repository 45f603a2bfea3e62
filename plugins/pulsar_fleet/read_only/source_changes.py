"""Changes that let shadow topics follow their sources: partitions, schemas and permissions (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.lookup import BY_FIELD
from pulsar_fleet.planning.changes.namespaces import setting
from pulsar_fleet.planning.changes.topics import schema_change, topic_change
from pulsar_fleet.planning.diff_entry import Difference, Resource, Side, same
from pulsar_fleet.planning.plan import Change
from pulsar_fleet.read_only.state import Observed, ShadowState, SourceState

_GRANTS = "auth_policies"


def grows(source: SourceState, shadow: ShadowState) -> bool:
    """Whether the source has got partitions that the shadow topic can get too."""
    return 0 < (shadow.partitions or 0) < (source.partitions or 0)


def follows_schemas(source: SourceState, shadow: ShadowState) -> bool:
    """Whether the schema numbers of the source mean the same on the shadow topic, now or after the next versions.

    Messages name their schema by its number, so both topics must have the same versions in the same order.
    """
    known = len(shadow.schemas)
    return source.schemas_are_numbered and same(list(source.schemas[:known]), list(shadow.schemas))


def following_changes(source: SourceState, shadow: ShadowState) -> Iterator[Change]:
    """Add the partitions and the schema versions that the shadow topic lacks; also for one that is created now."""
    if grows(source, shadow):
        change = topic_change(_difference(Resource.TOPIC, shadow, source.partitions, shadow.partitions, "partitions"))
        if isinstance(change, Change):
            yield change
    if follows_schemas(source, shadow) and len(source.schemas) > len(shadow.schemas):
        known = list(shadow.schemas) or None
        change = schema_change(_difference(Resource.SCHEMA, shadow, list(source.schemas), known))
        if isinstance(change, Change):
            yield change


def _difference(resource: Resource, shadow: ShadowState, source: Json, target: Json, field: str = "") -> Difference:
    side = Side.MISSING if target is None else Side.DIFFERENT
    return Difference(resource, str(shadow.topic), field, side, source, target)


def consumers_of(namespaces: Collection[JsonObject]) -> dict[str, list[str]]:
    """The permissions of a read-only namespace: roles that may consume from one of these namespaces may consume."""
    roles = {role for document in namespaces for role in _consuming(document)}
    return {role: ["consume"] for role in sorted(roles)}


def grant_changes(observed: Observed, namespace: str, sources: Sequence[SourceState]) -> Iterator[Change]:
    """Let roles consume that may consume from a source's namespace by now; no permission is taken."""
    if observed.document is None:
        return
    wanted = consumers_of([source.namespace for source in sources])
    if not (missing := wanted.keys() - {*_consuming(observed.document)}):
        return
    before = comparable(observed.document, observed.cluster).get(_GRANTS) or {}
    grants = dict(before.get("namespace_auth") or {})
    for role in missing:
        grants[role] = sorted({*(grants.get(role) or ()), "consume"})
    after = {**before, "namespace_auth": grants}
    yield setting(BY_FIELD[_GRANTS], namespace, before or None, after, "they may consume from a source by now")


def only_readers(observed: Observed) -> list[str]:
    """Roles that may consume in the read-only namespace, and from no namespace of the sources that were read."""
    allowed = consumers_of([source.namespace for source in observed.sources])
    return sorted({*_consuming(observed.document or {})} - allowed.keys())


def _consuming(document: JsonObject) -> Iterator[str]:
    grants = (document.get(_GRANTS) or {}).get("namespace_auth") or {}
    return (role for role, actions in grants.items() if "consume" in actions)
