"""Which schemas each cluster takes, and whether it would take the other's (pure).

PIP-433: a schema that the other side refuses stops replication, and the replicator still says that it is connected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

from pulsar_fleet.cluster.admin.call import Call, with_body
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.lookup import BY_FIELD
from pulsar_fleet.cluster.policies.setters import policy_calls
from pulsar_fleet.cluster.versions import version_numbers
from pulsar_fleet.preflight.context import Pair, blocker, call_text, setting, settings, warning
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.preflight.schema_rules import Judgement, judge
from pulsar_fleet.snapshot.model import SchemaState, Snapshot

STRATEGY, AUTO_UPDATE, ENFORCED = (
    "schema_compatibility_strategy",
    "is_allow_auto_update_schema",
    "schema_validation_enforced",
)
FOR_REPLICATOR = "is_allow_auto_update_schema_with_replicator"
_KNOWS_REPLICATOR = "4.3"
_BROKER_KEYS = {
    "schemaCompatibilityStrategy": STRATEGY,
    "isAllowAutoUpdateSchemaEnabled": AUTO_UPDATE,
    "isSchemaValidationEnforced": ENFORCED,
}
_DEFAULTS: Mapping[str, Json] = {STRATEGY: "as the brokers do", AUTO_UPDATE: True, ENFORCED: False}
_LEGACY = {
    "AutoUpdateDisabled": "ALWAYS_INCOMPATIBLE",
    "AlwaysCompatible": "ALWAYS_COMPATIBLE",
    "Backward": "BACKWARD",
    "Forward": "FORWARD",
    "Full": "FULL",
    "BackwardTransitive": "BACKWARD_TRANSITIVE",
    "ForwardTransitive": "FORWARD_TRANSITIVE",
    "FullTransitive": "FULL_TRANSITIVE",
}
_REFUSED = "A schema that one cluster takes is refused by the other, and replication stops without an error."


def brokers_judge_alike(pair: Pair) -> Iterator[Finding]:
    """The brokers' own settings count wherever a namespace says nothing."""
    for key in _BROKER_KEYS:
        ours, theirs = (set(settings(snapshot, key).values()) for snapshot in (pair.source, pair.target))
        if ours and theirs and ours != theirs:
            yield warning(
                "schema-default-differs",
                f"cluster {pair.target.cluster}",
                f"{key}: {pair.values(' and '.join(sorted(ours)), ' and '.join(sorted(theirs)))}",
                _REFUSED,
                f"set {key}={sorted(ours)[0]} in broker.conf of every broker of {pair.target.cluster}, "
                "or the policy on each namespace.",
                values=(sorted(ours), sorted(theirs)),
            )


def namespaces_judge_alike(pair: Pair) -> Iterator[Finding]:
    """The effective rule of a namespace that both have."""
    for name, wanted, held in pair.shared():
        for field in (STRATEGY, AUTO_UPDATE, ENFORCED):
            ours, theirs = _rule(pair.source, wanted, field), _rule(pair.target, held, field)
            said = wanted.get(field) not in (None, "UNDEFINED") or held.get(field) not in (None, "UNDEFINED")
            if ours != theirs and said:
                calls = policy_calls(BY_FIELD[field], NamespaceName.parse(name), held.get(field), wanted.get(field))
                yield warning(
                    "schema-strategy-differs",
                    name,
                    f"{field}: {pair.values(ours, theirs)}",
                    _REFUSED,
                    "the plan sets it; a topic that is stuck already must then be unloaded on the target.",
                    call=call_text(pair.target.cluster, *calls),
                    values=(ours, theirs),
                )


def _rule(snapshot: Snapshot, policies: JsonObject, field: str) -> Json:
    if field == STRATEGY:
        return namespace_strategy(snapshot, policies) or _DEFAULTS[STRATEGY]
    value = policies.get(field)
    return _DEFAULTS[field] if value is None else value


def namespace_strategy(snapshot: Snapshot, policies: JsonObject) -> str:
    """The strategy in force in a namespace; empty where it is the brokers' and they did not tell."""
    own = policies.get(STRATEGY)
    if own and own != "UNDEFINED":
        return str(own)
    legacy = _LEGACY.get(str(policies.get("schema_auto_update_compatibility_strategy")))
    return legacy or setting(snapshot, "schemaCompatibilityStrategy") or ""


def replicators_may_register(pair: Pair) -> Iterator[Finding]:
    """Where schemas are only registered by hand, replicators may not register any either, unless the version can tell.

    `--enable-for-replicator` (from 4.3) is on by default; until then a replicator gets stuck at the first new schema.
    """
    for namespace in pair.wanted.namespaces:
        if namespace.policies.get(AUTO_UPDATE) is not False or _replicator_may(pair, namespace.policies):
            continue
        flag = namespace.policies.get(FOR_REPLICATOR, "unknown to this version")
        path = f"/namespaces/{NamespaceName.parse(namespace.name).path}/isAllowAutoUpdateSchema"
        yield warning(
            "schema-update-off-for-replicator",
            namespace.name,
            f"{AUTO_UPDATE} = False, {FOR_REPLICATOR} = {flag}",
            "A replicator stops at the first message with a new schema, and the backlog grows without an error.",
            "register every schema on both sides before it is used, or allow updates on both.",
            call=call_text(pair.target.cluster, with_body("POST", path, True)),
        )


def _replicator_may(pair: Pair, document: JsonObject) -> bool:
    versions = [pair.source.oldest_version(), pair.target.oldest_version()]
    known = all(version_numbers(one) >= version_numbers(_KNOWS_REPLICATOR) for one in versions)
    return known and document.get(FOR_REPLICATOR) is not False


def schemas_fit_together(pair: Pair) -> Iterator[Finding]:
    """Each topic that both have: the newest version of either side must be one that the other would take."""
    ours, theirs = _by_topic(pair.source), _by_topic(pair.target)
    held = {topic.name for topic in pair.target.topics}
    for topic in pair.source.topics:
        if topic.name not in held:
            continue
        mine, other = ours.get(topic.name, []), theirs.get(topic.name, [])
        if other and not mine:
            yield from _only_on_target(pair, topic.name, other)
        elif mine and other and not _one_continues_the_other(mine, other):
            yield _histories_differ(pair, topic.name, mine, other)


def _only_on_target(pair: Pair, topic: str, other: Sequence[SchemaState]) -> Iterator[Finding]:
    namespace = str(TopicName.parse(topic).namespace)
    wanted = {one.name: one.policies for one in pair.wanted.namespaces}.get(namespace, {})
    enforced = bool(wanted.get(ENFORCED)) or setting(pair.target, "isSchemaValidationEnforced") == "true"
    yield (blocker if enforced else warning)(
        "schema-only-on-target",
        topic,
        pair.values("no schema", f"{len(other)} versions"),
        "Producers without a schema are refused there."
        if enforced
        else "Messages without a schema end up in a topic whose consumers expect one.",
        f"delete the schema on {pair.target.cluster} if nothing uses it, or register it on {pair.source.cluster}.",
        call=call_text(pair.target.cluster, Call("DELETE", f"{_schema_path(topic)}/schema")),
        values=(0, len(other)),
    )


def _histories_differ(pair: Pair, topic: str, mine: Sequence[SchemaState], other: Sequence[SchemaState]) -> Finding:
    strategy = _topic_strategy(pair, topic)
    evidence = pair.values(f"{len(mine)} versions", f"{len(other)} versions") + f", strategy {strategy or 'unknown'}"
    judgement = max(_judged(pair, strategy, mine[-1], other), judge(strategy, other[-1], mine))
    newest = mine[-1]
    body = {"type": newest.type, "schema": newest.schema, "properties": dict(newest.properties)}
    asked = call_text(pair.target.cluster, with_body("POST", f"{_schema_path(topic)}/compatibility", body))
    if judgement is Judgement.INCOMPATIBLE:
        return blocker(
            "schema-incompatible",
            topic,
            evidence,
            "The newest schema of one side is refused by the other: replication stops, and clients that move fail.",
            f"open the strategy on {pair.target.cluster}, register the source's versions, unload the topic there.",
            call=asked,
            values=(len(mine), len(other)),
        )
    if judgement is Judgement.UNDECIDED:
        return warning(
            "schema-undecided",
            topic,
            evidence,
            "Whether each side takes the other's newest schema can only be told by a broker.",
            "ask it: nothing is registered by this call.",
            call=asked,
            values=(len(mine), len(other)),
        )
    return warning(
        "schema-history-differs",
        topic,
        evidence,
        "The newest schemas go together, but the history on the target is another one and is left as it is.",
        "nothing, if no consumer reads messages by the version of their schema.",
        call=asked,
        values=(len(mine), len(other)),
    )


def _judged(pair: Pair, strategy: str, new: SchemaState, existing: Sequence[SchemaState]) -> Judgement:
    """What the broker said, if it was asked; else what the rules say."""
    for answer in pair.probes.schemas:
        if (answer.topic, answer.version) == (new.topic, new.version):
            return Judgement.COMPATIBLE if answer.compatible else Judgement.INCOMPATIBLE
    return judge(strategy, new, existing)


def _topic_strategy(pair: Pair, topic: str) -> str:
    """The strategy that the topic will have on the target, as the plan copies it."""
    for one in pair.wanted.topic_policies:
        own = one.policies.get("schemaCompatibilityStrategy")
        if one.topic == topic and own and own != "UNDEFINED":
            return str(own)
    namespace = str(TopicName.parse(topic).namespace)
    policies = {one.name: one.policies for one in pair.wanted.namespaces}.get(namespace, {})
    return namespace_strategy(pair.target, policies)


def _by_topic(snapshot: Snapshot) -> dict[str, list[SchemaState]]:
    found: dict[str, list[SchemaState]] = {}
    for one in sorted(snapshot.schemas, key=lambda schema: schema.version):
        found.setdefault(one.topic, []).append(one)
    return found


def _one_continues_the_other(mine: Sequence[SchemaState], other: Sequence[SchemaState]) -> bool:
    shared = min(len(mine), len(other))
    return _texts(mine)[:shared] == _texts(other)[:shared]


def _texts(versions: Sequence[SchemaState]) -> list[tuple[str, str]]:
    return [(one.type, one.schema) for one in versions]


def _schema_path(topic: str) -> str:
    name = TopicName.parse(topic)
    return f"/schemas/{name.namespace.path}/{quote(name.local, safe='')}"
