"""Which schemas each cluster accepts, and whether it would accept the other's (pure).

PIP-433: a schema that the other cluster refuses stops replication, while the replicator reports that it is connected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pulsar_fleet.cluster.admin.call import bare, with_body
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD
from pulsar_fleet.cluster.policies.setters import policy_calls
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.cluster.versions import replicators_are_excepted
from pulsar_fleet.preflight.context import Pair, blocker, call_text, keeping_calls, setting, warning
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.preflight.schema_rules import SchemaFit, check_schema
from pulsar_fleet.snapshot.model import SchemaState, Snapshot

STRATEGY, AUTO_UPDATE, ENFORCED = (
    "schema_compatibility_strategy",
    "is_allow_auto_update_schema",
    "schema_validation_enforced",
)
_LEGACY_STRATEGY = "schema_auto_update_compatibility_strategy"
FOR_REPLICATOR = "is_allow_auto_update_schema_with_replicator"
_BROKER_KEYS = {
    "schemaCompatibilityStrategy": STRATEGY,
    "isAllowAutoUpdateSchemaEnabled": AUTO_UPDATE,
    "isSchemaValidationEnforced": ENFORCED,
}
_DEFAULTS: Mapping[str, Json] = {STRATEGY: "broker default", AUTO_UPDATE: True, ENFORCED: False}
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
_REFUSED = "One cluster accepts a schema that the other refuses, and replication stops without an error."


def broker_schema_rules_match(pair: Pair) -> Iterator[Finding]:
    """The brokers' settings are effective where a namespace has no policy, and for namespaces created later."""
    relying = [
        state.name
        for state in pair.translated.namespaces
        if state.policies.get(STRATEGY) in (None, "UNDEFINED") and not state.policies.get(_LEGACY_STRATEGY)
    ]
    for key, ours, theirs in pair.differing_settings(_BROKER_KEYS):
        if key == "schemaCompatibilityStrategy" and not relying:
            continue
        remedy, call = _kept_rule(pair, key, theirs, relying)
        yield warning(
            "schema-default-differs",
            f"cluster {pair.target.cluster}",
            f"{key}: {pair.values(ours, theirs)}",
            _REFUSED,
            remedy,
            call=call,
            values=(ours, theirs),
        )


def _kept_rule(pair: Pair, key: str, theirs: Sequence[str], relying: Sequence[str]) -> tuple[str, str]:
    """A broker reports its own value for a namespace without a rule for updates, and the plan copies that value.

    Validation is enforced where the broker or the namespace says so (observed).
    """
    source, target = pair.source.cluster, pair.target.cluster
    if key == "schemaCompatibilityStrategy":
        return (
            f"set the strategy on each namespace without one on {source} to what its brokers apply: nothing changes "
            "there, and the plan copies it.",
            keeping_calls(pair, STRATEGY, relying),
        )
    if key == "isAllowAutoUpdateSchemaEnabled":
        return f"nothing for the namespaces of {source}: the plan copies what its brokers apply.", ""
    if "true" in theirs:
        return (
            f"let every producer use its topic's schema before it moves: no policy switches this off on {target}.",
            "",
        )
    return (
        f"nothing, if producers without a schema may write to {target}. Else set schema_validation_enforced on each "
        f"namespace on {source}: nothing changes there, and the plan copies it.",
        "",
    )


def namespace_schema_rules_match(pair: Pair) -> Iterator[Finding]:
    """The effective rules of the common namespaces."""
    for name, source, target in pair.common_namespaces():
        for field in (STRATEGY, AUTO_UPDATE, ENFORCED):
            ours, theirs = _rule(pair.source, source, field), _rule(pair.target, target, field)
            explicit = not {source.get(field), target.get(field)} <= {None, "UNDEFINED"}
            if ours != theirs and explicit:
                calls = policy_calls(BY_FIELD[field], NamespaceName.parse(name), target.get(field), source.get(field))
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
    """The effective strategy of a namespace; empty where it is the brokers' and they do not report it."""
    own = policies.get(STRATEGY)
    if own and own != "UNDEFINED":
        return str(own)
    legacy = _LEGACY.get(str(policies.get(_LEGACY_STRATEGY)))
    return legacy or setting(snapshot, "schemaCompatibilityStrategy") or ""


def replicators_may_register(pair: Pair) -> Iterator[Finding]:
    """Where clients may not register schemas, replicators may not either, unless both versions support the exception.

    `--enable-for-replicator` (from 4.3) is on by default; earlier, a replicator stops at the first new schema.
    """
    supported = replicators_are_excepted(pair.source.oldest_version(), pair.target.oldest_version())
    for namespace in pair.translated.namespaces:
        document = pair.policies_after(namespace.name)
        if document.get(AUTO_UPDATE) is not False or (supported and document.get(FOR_REPLICATOR) is not False):
            continue
        flag = document.get(FOR_REPLICATOR, True) if supported else "unknown to one of the versions"
        allow = policy_calls(BY_FIELD[FOR_REPLICATOR], NamespaceName.parse(namespace.name), False, True)
        remedy = "register every schema on both clusters before it is used"
        yield warning(
            "schema-update-off-for-replicator",
            namespace.name,
            f"{AUTO_UPDATE} = False, {FOR_REPLICATOR} = {flag}",
            "A replicator stops at the first message with a new schema, and the backlog grows without an error.",
            f"{remedy}, or let replicators register them." if supported else f"{remedy}.",
            call=call_text(pair.owner(namespace.name), *allow) if supported else "",
        )


def schemas_are_compatible(pair: Pair) -> Iterator[Finding]:
    """For each topic that both have, each cluster must accept the newest version of the other."""
    ours, theirs = _by_topic(pair.source), _by_topic(pair.target)
    target_topics = {topic.name for topic in pair.target.topics}
    for topic in pair.source.topics:
        if topic.name not in target_topics:
            continue
        mine, other = ours.get(topic.name, []), theirs.get(topic.name, [])
        if other and not mine:
            yield from _only_on_target(pair, topic.name, other)
        elif mine and other and not _one_continues_the_other(mine, other):
            yield _histories_differ(pair, topic.name, mine, other)


def _only_on_target(pair: Pair, topic: str, other: Sequence[SchemaState]) -> Iterator[Finding]:
    namespace = str(TopicName.parse(topic).namespace)
    document = pair.policies_after(namespace)
    enforced = bool(document.get(ENFORCED)) or setting(pair.target, "isSchemaValidationEnforced") == "true"
    yield (blocker if enforced else warning)(
        "schema-only-on-target",
        topic,
        pair.values("no schema", f"{len(other)} versions"),
        "Producers without a schema are refused there."
        if enforced
        else "The topic gets messages without a schema, and its consumers expect one.",
        (
            f"let its producers on {pair.source.cluster} use this schema, then register it there too: where validation "
            "is enforced, a topic with a schema refuses producers without one. "
            if enforced
            else f"register it on {pair.source.cluster} too. "
        )
        + f"Do not delete it on {pair.target.cluster} while the topic has clients or messages there: they could no "
        "longer be decoded.",
        call=call_text(pair.target.cluster, bare("GET", f"{TopicName.parse(topic).schema_path}/schemas")),
        values=(0, len(other)),
    )


def _histories_differ(pair: Pair, topic: str, mine: Sequence[SchemaState], other: Sequence[SchemaState]) -> Finding:
    strategy = _topic_strategy(pair, topic)
    texts = [counted(len(versions), f"{versions[-1].type} version") for versions in (mine, other)]
    evidence = f"{pair.values(*texts)}, strategy {strategy or 'unknown'}"
    judgement = max(_judged(pair, strategy, mine[-1], other), check_schema(strategy, other[-1], mine))
    newest = mine[-1]
    body = {"type": newest.type, "schema": newest.schema, "properties": dict(newest.properties)}
    path = f"{TopicName.parse(topic).schema_path}/compatibility"
    question = call_text(pair.target.cluster, with_body("POST", path, body))
    id_, consequence, remedy = {
        SchemaFit.INCOMPATIBLE: (
            "schema-incompatible",
            "One cluster refuses the newest schema of the other: replication stops, and clients that move fail.",
            "let the application's team choose one history. If the topic has no messages and no clients on "
            f"{pair.target.cluster}, delete the topic and its schemas there: the plan registers the source's."
            if newest.type == other[-1].type
            else "find out which type the applications use, since consumers of one cannot read messages of the other. "
            f"If the topic has no messages and no clients on {pair.target.cluster}, delete the topic and its schemas "
            "there: the plan registers the source's.",
        ),
        SchemaFit.UNDECIDED: (
            "schema-undecided",
            "Only a broker can decide whether each cluster accepts the newest schema of the other.",
            "ask the broker: this call registers nothing.",
        ),
        SchemaFit.COMPATIBLE: (
            "schema-history-differs",
            "The newest schemas are compatible, but the history on the target differs and is not changed.",
            "nothing, if no consumer reads messages by the version of their schema.",
        ),
    }[judgement]
    report = blocker if judgement is SchemaFit.INCOMPATIBLE else warning
    counts = (len(mine), len(other))
    return report(id_, topic, evidence, consequence, remedy, call=question, values=counts)


def _judged(pair: Pair, strategy: str, new: SchemaState, existing: Sequence[SchemaState]) -> SchemaFit:
    """The broker's answer, if there is one; else the result of the rules."""
    for answer in pair.probes.schemas:
        if (answer.topic, answer.version) == (new.topic, new.version):
            return SchemaFit.COMPATIBLE if answer.compatible else SchemaFit.INCOMPATIBLE
    return check_schema(strategy, new, existing)


def _topic_strategy(pair: Pair, topic: str) -> str:
    """The strategy that the topic will have on the target after the plan."""
    for row in pair.translated.topic_policies:
        own = row.policies.get("schemaCompatibilityStrategy")
        if row.topic == topic and own and own != "UNDEFINED":
            return str(own)
    namespace = str(TopicName.parse(topic).namespace)
    return namespace_strategy(pair.target, pair.policies_after(namespace))


def _by_topic(snapshot: Snapshot) -> dict[str, list[SchemaState]]:
    versions: dict[str, list[SchemaState]] = {}
    for row in sorted(snapshot.schemas, key=lambda schema: schema.version):
        versions.setdefault(row.topic, []).append(row)
    return versions


def _one_continues_the_other(mine: Sequence[SchemaState], other: Sequence[SchemaState]) -> bool:
    common = min(len(mine), len(other))
    return _texts(mine)[:common] == _texts(other)[:common]


def _texts(versions: Sequence[SchemaState]) -> list[tuple[str, str]]:
    return [(row.type, row.schema) for row in versions]
