"""Changes that let shadow topics follow their sources: partitions, schemas and permissions (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD
from pulsar_fleet.planning.changes.namespaces import TOPIC_GRANTS, setting
from pulsar_fleet.planning.changes.topics import schema_change, topic_change
from pulsar_fleet.planning.diff_entry import Difference, Resource, Side, same
from pulsar_fleet.planning.plan import Change
from pulsar_fleet.read_only.request import Request
from pulsar_fleet.read_only.state import Observed, ShadowState, SourceState

_GRANTS = "auth_policies"
_NAMESPACE_GRANTS, _TOPIC_GRANTS = "namespace_auth", TOPIC_GRANTS


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


def consumers_of(topic: TopicName, namespace: JsonObject) -> frozenset[str]:
    """The roles that may consume from a topic: by its namespace's policies, for all topics or for this one."""
    rights = namespace.get(_GRANTS) or {}
    own = (rights.get(_TOPIC_GRANTS) or {}).get(str(topic)) or {}
    return frozenset({*_consuming(rights.get(_NAMESPACE_GRANTS) or {}), *_consuming(own)})


def rights_of_readers(observed: Observed, request: Request) -> dict[TopicName, frozenset[str]]:
    """Shadow topic → the roles that may consume from its source, of all that the namespace serves or is to serve."""
    sources = {source.topic: source.namespace for source in observed.sources if source.partitions is not None}
    return {
        request.shadow(topic): consumers_of(topic, document)
        for topic, document in {**observed.served, **sources}.items()
    }


def grants_of(rights: Mapping[TopicName, frozenset[str]]) -> JsonObject:
    """The permissions of a new namespace: roles that may consume from every source may consume from all of it."""
    common = frozenset.intersection(*rights.values()) if rights else frozenset()
    return {_NAMESPACE_GRANTS: {role: ["consume"] for role in sorted(common)}}


def narrowing_changes(observed: Observed, request: Request) -> Iterator[Change]:
    """Let roles that may consume from some sources only read the shadow topics of these, and no longer all of them.

    A role that may consume from no source was let in by a person: it stays.
    """
    rights = rights_of_readers(observed, request)
    before = _current(observed)
    partial = _partial(before, rights)
    if partial:
        kept = {topic: roles for topic, roles in rights.items() if topic in map(request.shadow, observed.served)}
        after = _with_topics(_without_roles(before, partial), {topic: roles & partial for topic, roles in kept.items()})
        reason = "they may not consume from every source of this namespace"
        yield setting(BY_FIELD[_GRANTS], str(request.namespace), before, after, reason)


def grant_changes(observed: Observed, request: Request, *, revokes: bool = True) -> Iterator[Change]:
    """Let roles consume that may consume from the sources: from all of the namespace, or from single shadow topics.

    It comes after the shadow topics: a broker refuses rights on a topic that is missing.

    :param revokes: `narrowing_changes` came before.
    """
    rights = rights_of_readers(observed, request)
    if not rights:
        return
    before = _current(observed) if observed.document is not None else _shaped(grants_of(rights))
    if revokes:
        for change in narrowing_changes(observed, request):
            before = change.after
    common = frozenset.intersection(*rights.values())
    roles = {**(before.get(_NAMESPACE_GRANTS) or {})}
    for role in common - {*_consuming(roles)}:
        roles[role] = sorted({*(roles.get(role) or ()), "consume"})
    everywhere = {*_consuming(roles)}
    after = _with_topics(
        {**before, **({_NAMESPACE_GRANTS: roles} if roles else {})},
        {topic: granted - everywhere for topic, granted in rights.items()},
    )
    if after != before:
        reason = "they may consume from the source"
        yield setting(BY_FIELD[_GRANTS], str(request.namespace), before or None, after, reason)


def only_readers(observed: Observed, request: Request) -> list[str]:
    """Who may consume here and from no source, or from a topic and not from its source: `role`, `role on TOPIC`."""
    rights, current = rights_of_readers(observed, request), _current(observed)
    known = frozenset[str]().union(*rights.values())
    topics = {TopicName.parse(name): granted for name, granted in (current.get(_TOPIC_GRANTS) or {}).items()}
    return [
        *sorted({*_consuming(current.get(_NAMESPACE_GRANTS) or {})} - known),
        *(
            f"{role} on {topic}"
            for topic, granted in sorted(topics.items())
            for role in sorted({*_consuming(granted)} - rights.get(topic, frozenset()))
        ),
    ]


def partial_readers(observed: Observed, request: Request) -> list[str]:
    """Roles that may read all of the namespace, and may consume from some of its sources only."""
    return sorted(_partial(_current(observed), rights_of_readers(observed, request)))


def _partial(current: JsonObject, rights: Mapping[TopicName, frozenset[str]]) -> frozenset[str]:
    if not rights:
        return frozenset()
    some = frozenset[str]().union(*rights.values()) - frozenset.intersection(*rights.values())
    return some & {*_consuming(current.get(_NAMESPACE_GRANTS) or {})}


def _current(observed: Observed) -> JsonObject:
    rights: JsonObject = comparable(observed.document or {}, observed.cluster).get(_GRANTS) or {}
    return rights


def _without_roles(rights: JsonObject, roles: Collection[str]) -> JsonObject:
    kept = {
        role: [action for action in actions if role not in roles or action != "consume"]
        for role, actions in rights.get(_NAMESPACE_GRANTS, {}).items()
    }
    return _shaped({**rights, _NAMESPACE_GRANTS: kept})


def _with_topics(rights: JsonObject, granted: Mapping[TopicName, Collection[str]]) -> JsonObject:
    topics = {name: dict(roles) for name, roles in (rights.get(_TOPIC_GRANTS) or {}).items()}
    for topic, roles in granted.items():
        entry = topics.setdefault(str(topic), {})
        for role in roles:
            entry[role] = sorted({*(entry.get(role) or ()), "consume"})
    return _shaped({**rights, _TOPIC_GRANTS: topics})


def _shaped(rights: JsonObject) -> JsonObject:
    """Without empty sections and entries, as rights are compared."""
    sections = {
        section: {name: entry for name, entry in (entries or {}).items() if entry}
        for section, entries in rights.items()
    }
    sections[_NAMESPACE_GRANTS] = {
        role: sorted(actions) for role, actions in sections.get(_NAMESPACE_GRANTS, {}).items() if actions
    }
    return {section: entries for section, entries in sections.items() if entries}


def _consuming(granted: JsonObject) -> Iterator[str]:
    return (role for role, actions in granted.items() if "consume" in (actions or ()))
