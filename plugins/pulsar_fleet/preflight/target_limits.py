"""The one table of what a target refuses, or cannot carry; every procedure that writes or sends there asks it (pure).

Plans ask with two snapshots (`Limit.check`), the doctor with what is in effect for a topic (`Limit.exceeded`). What
limits producers and not replicators was measured too, see `CARRIED`. The limits that a copy exceeds on its source are
`quotas_met_by_copy`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from pulsar_fleet.cluster.admin.call import Call, with_body
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.effective import Layer, effective_value, layer_values, parsed_setting
from pulsar_fleet.cluster.policies.model import Scope
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD, topic_comparable
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.preflight.bookies import Bookies, affinity_groups
from pulsar_fleet.preflight.checks import functions, limits, schemas, target_rules
from pulsar_fleet.preflight.context import Pair, blocker, warning
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.snapshot.model import Snapshot

_QUOTAS = "backLogQuotaMap"
_DELAY, _ENSEMBLE, _SIZE = "maxDeliveryDelayInMillis", "bookkeeperEnsemble", "maxMessageSize"
_ENCRYPTION, _BROKERS_ENCRYPTION = "encryption_required", "encryptionRequireOnProducer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """The policies of a namespace, and of a topic of it, on one cluster; all are comparable ones.

    :param local: the topic's own; `shared` its global ones.
    :param configuration: the settings of a broker.
    :param bookies: of the cluster; None if they were not asked for.
    """

    cluster: str
    namespace: Mapping[str, Json]
    local: Mapping[str, Json] = field(default_factory=dict)
    shared: Mapping[str, Json] = field(default_factory=dict)
    configuration: Mapping[str, Json] = field(default_factory=dict)
    bookies: Bookies | None = None

    def value(self, name: str) -> Json:
        """The value of a topic policy that is in effect, None if no layer sets one."""
        return effective_value(TOPIC_BY_FIELD[name], **self._documents())

    def layers(self, name: str) -> dict[Layer, Json]:
        """The layers that set a topic policy, the effective one first."""
        return layer_values(TOPIC_BY_FIELD[name], **self._documents())

    def _documents(self) -> dict[str, Mapping[str, Json]]:
        keys = ("local", "shared", "namespace", "configuration")
        return {key: getattr(self, key) for key in keys}


@dataclass(frozen=True, slots=True)
class Exceeded:
    """A limit of the target that the source, or what it sends, does not keep.

    :param source: the value on the source; `target` on the target.
    """

    evidence: str
    source: Json
    target: Json


def _in_plans_only(_: Effective, __: Effective) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A row.

    :param ids: of the findings of a plan.
    :param refuses: what the target refuses.
    :param read: the policies and settings from which it is read.
    :param effect: what becomes of it.
    :param since: the first Pulsar version that has the limit; empty for all.
    :param check: the decision of a plan.
    :param replicated: replication meets it too, not only a copy of policies.
    :param exceeded: the decision for a namespace or topic, by what is in effect; none where only a plan can tell.
    :param cause: the diagnosis of the doctor; empty where it has none.
    """

    ids: tuple[str, ...]
    refuses: str
    read: str
    effect: str
    check: Callable[[Pair], Iterator[Finding]]
    since: str = ""
    replicated: bool = True
    exceeded: Callable[[Effective, Effective], Exceeded | None] = _in_plans_only
    cause: str = ""


def _encryption(_: Effective, target: Effective) -> Exceeded | None:
    """Also where both clusters require it: a replicator sends what producers have encrypted without saying so."""
    if target.namespace.get(_ENCRYPTION):
        return Exceeded(f"{_ENCRYPTION} is true on {target.cluster}", None, True)
    if parsed_setting(target.configuration.get(_BROKERS_ENCRYPTION)) is True:
        return Exceeded(f"{_BROKERS_ENCRYPTION}=true of the brokers of {target.cluster}", None, True)
    return None


def _delay(source: Effective, target: Effective) -> Exceeded | None:
    theirs = target.value("delayedDelivery") or {}
    ours = int((source.value("delayedDelivery") or {}).get(_DELAY) or 0)
    longest = int(theirs.get(_DELAY) or 0)
    if longest <= 0 or theirs.get("active") is False or 0 < ours <= longest:
        return None
    shown = f"{ours:,}" if ours else "no limit"
    return Exceeded(f"{_DELAY}: {source.cluster} {shown}, {target.cluster} {longest:,}", ours, longest)


def _size(source: Effective, target: Effective) -> Exceeded | None:
    """Only a topic's own limit: `max-message-size-smaller` is about the brokers'."""
    own = int(target.local.get(_SIZE) or target.shared.get(_SIZE) or 0)
    ours = int(source.value(_SIZE) or 0)
    if own <= 0 or 0 < ours <= own:
        return None
    shown = f"{ours:,}" if ours else "not known"
    return Exceeded(f"{_SIZE} of the topic: {source.cluster} {shown}, {target.cluster} {own:,} bytes", ours, own)


def _brokers_size(source: Effective, target: Effective) -> Exceeded | None:
    ours, theirs = (int(side.configuration.get(_SIZE) or 0) for side in (source, target))
    if theirs <= 0 or ours <= theirs:
        return None
    return Exceeded(
        f"{_SIZE} of the brokers: {source.cluster} {ours:,}, {target.cluster} {theirs:,} bytes", ours, theirs
    )


def _bookies(_: Effective, target: Effective) -> Exceeded | None:
    asked, count = _ensemble(target), target.bookies.count if target.bookies else None
    if count is None or asked <= count:
        return None
    evidence = f"{_ENSEMBLE} is {asked} on {target.cluster}, which has {counted(count, 'bookie')}"
    return Exceeded(evidence, asked, count)


def _groups(_: Effective, target: Effective) -> Exceeded | None:
    groups, bookies = affinity_groups(target.namespace.get("bookie_affinity")), target.bookies
    missing = bookies.lacking(groups) if bookies else ()
    if bookies is None or not missing or bookies.usable(groups) >= max(1, _ensemble(target)):
        return None
    evidence = f"the namespace on {target.cluster} has a bookie affinity to {listed(groups)}, and no bookie is in "
    return Exceeded(evidence + listed(missing), list(groups), sorted(bookies.groups or ()))


def _ensemble(side: Effective) -> int:
    return int((side.value("persistence") or {}).get(_ENSEMBLE) or 0)


def effective_policies(snapshot: Snapshot) -> dict[str, Effective]:
    """Each namespace, and each topic with policies of its own, by name."""
    configuration = snapshot.brokers[0].configuration if snapshot.brokers else {}
    namespaces = {
        state.name: Effective(
            cluster=snapshot.cluster,
            namespace=comparable(state.policies, snapshot.cluster),
            configuration=configuration,
        )
        for state in snapshot.namespaces
    }
    topics: dict[str, Effective] = {}
    for row in snapshot.topic_policies:
        namespace = namespaces.get(str(TopicName.parse(row.topic).namespace))
        if namespace is not None:
            before, own = topics.get(row.topic, namespace), topic_comparable(row.policies)
            is_local = row.scope == Scope.LOCAL
            topics[row.topic] = replace(before, local=own) if is_local else replace(before, shared=own)
    return namespaces | topics


def _sent(
    id_: str,
    exceeded: Callable[[Effective, Effective], Exceeded | None],
    consequence: str,
    remedy: str,
    for_producers: str,
    pair: Pair,
) -> Iterator[Finding]:
    """A limit for what is sent: a blocker where replicators send, else a warning if it holds for producers too.

    :param for_producers: what becomes of a producer's messages; empty where the limit does not hold for them.
    """
    ours, theirs = effective_policies(pair.source), effective_policies(_on_target(pair))
    both = {"source": pair.source.cluster, "target": pair.target.cluster}
    for name in sorted(ours.keys() | theirs.keys()):
        namespace = str(TopicName.parse(name).namespace) if "://" in name else name
        if namespace not in ours or namespace not in theirs:
            continue
        sides = [rows.get(name, rows[namespace]) for rows in (ours, theirs)]
        limit = exceeded(*sides)
        if limit is None or (name != namespace and limit == exceeded(ours[namespace], theirs[namespace])):
            continue
        sends = pair.replicated(namespace)
        if sends or for_producers:
            yield (blocker if sends else warning)(
                id_,
                name,
                limit.evidence,
                (consequence if sends else for_producers).format(**both),
                remedy.format(**both),
                values=(limit.source, limit.target),
            )


def _on_target(pair: Pair) -> Snapshot:
    """What the target will have, under its own brokers."""
    return replace(pair.translated, cluster=pair.target.cluster, brokers=pair.target.brokers)


UNLINKED = "Replicators never connect to {target}, and nothing is sent."
LOST = (
    "A replicator sends a message that exceeds it again without a pause, and nothing after it. After the next messages "
    "{source} counts it as sent: {target} never has it, and has another one twice (observed, 4.2.4)."
)
NO_ENCRYPTION = (
    "do not require encryption on {target} until replication to it has ended: until then producers may publish without "
    "encryption there, and messages that are encrypted stay so. Where it must be required, do not replicate to "
    "{target}: a replicator is refused even with messages that are encrypted."
)
REFUSED = "{target} refuses a message that exceeds it, and its producer gets an error."


def same_limit(used: str) -> str:
    """The remedy of a lower limit; `used` is what applications send at most."""
    return (
        f"allow on {{target}} what {{source}} allows, or set the limit of {{target}} on {{source}} too, not below "
        f"{used}: producers that exceed it then get an error. Nothing is to be done if no application exceeds it."
    )


LONGEST, LARGEST = same_limit("the longest delay in use"), same_limit("the size of the largest message")
_REFUSED = "it, and what is in it, is not created"
_NO_POLICY = "the policy is refused; of a namespace to be created, everything in it"
_HELD = "the replicator is connected and sends nothing after the first message with that schema"
_RESENT = "the replicator sends it again without a pause; with the next messages it is lost, and another is there twice"
BOOKIES = Limit(
    ids=("bookies-missing", "bookies-unknown"),
    refuses="a ledger on more bookies than it has; the policy is accepted",
    read="`persistence`, `managedLedgerDefaultEnsembleSize`, the bookies",
    effect="topics can be neither created nor read, calls about them time out, and replicators never connect",
    check=limits.bookies_suffice,
    exceeded=_bookies,
    cause="bookies-missing",
)
ENCRYPTION = Limit(
    ids=("replicator-not-encrypted",),
    refuses="producers that do not encrypt: replicators, also with messages that are encrypted",
    read="`encryption_required`, `encryptionRequireOnProducer`",
    effect="replicators never connect",
    check=partial(_sent, "replicator-not-encrypted", _encryption, UNLINKED, NO_ENCRYPTION, ""),
    exceeded=_encryption,
    cause="encryption-required",
)
DELAY = Limit(
    ids=("longest-delay-shorter",),
    refuses="a message whose delivery is delayed for longer",
    read="`delayed_delivery_policies`, `delayedDelivery` of the topic, `delayedDeliveryMaxDelayInMillis`",
    effect=_RESENT,
    since="4.0",
    check=partial(_sent, "longest-delay-shorter", _delay, LOST, LONGEST, REFUSED),
    exceeded=_delay,
    cause="message-refused",
)
SIZE = Limit(
    ids=("message-size-lower",),
    refuses="a message that is larger than its topic allows",
    read="`maxMessageSize` of the topic",
    effect=_RESENT,
    check=partial(_sent, "message-size-lower", _size, LOST, LARGEST, REFUSED),
    exceeded=_size,
    cause="message-refused",
)
TABLE: tuple[Limit, ...] = (
    Limit(
        ids=("too-many-tenants",),
        refuses="a tenant more",
        read="`maxTenants`",
        effect=_REFUSED,
        check=limits.tenants_fit,
    ),
    Limit(
        ids=("too-many-namespaces",),
        refuses="a namespace more in a tenant",
        read="`maxNamespacesPerTenant`",
        effect=_REFUSED,
        check=limits.namespaces_fit,
    ),
    Limit(
        ids=("too-many-topics",),
        refuses="a topic or partition more in a namespace",
        read="`max_topics_per_namespace`, `maxTopicsPerNamespace`",
        effect="it is not created, also not by a replicator, which then never connects",
        check=limits.topics_fit,
        cause="too-many-topics",
    ),
    Limit(
        ids=("too-many-partitions",),
        refuses="a topic with more partitions",
        read="`maxNumPartitionsPerPartitionedTopic`",
        effect=_REFUSED,
        check=limits.partitions_fit,
    ),
    Limit(
        ids=("too-many-subscriptions",),
        refuses="a subscription more on a topic",
        read="`max_subscriptions_per_topic`, `maxSubscriptionsPerTopic` of the topic and of brokers",
        effect="its consumers start without their backlog",
        check=limits.subscriptions_fit,
        replicated=False,
    ),
    Limit(
        ids=("persistence-too-wide",),
        refuses="a policy with more copies of a message",
        read="`managedLedgerMaxEnsembleSize`, `…MaxWriteQuorum`, `…MaxAckQuorum`",
        effect=_NO_POLICY,
        check=limits.persistence_fits,
    ),
    BOOKIES,
    Limit(
        ids=("bookie-group-missing",),
        refuses="a ledger on bookies of other groups than those of the namespace; the policy is accepted",
        read="`bookie_affinity`, the groups of the bookies",
        effect="topics can be neither created nor read where too few bookies are in a named group or in none; else "
        "nothing keeps its ledgers apart",
        check=limits.bookie_groups_exist,
        exceeded=_groups,
        cause="bookie-group-missing",
    ),
    Limit(
        ids=("resource-group-missing", "resource-group-not-copied", "resource-group-differs"),
        refuses="a call that sets a resource group that it lacks; a namespace that is created with it is accepted",
        read="`resource_group_name`, the resource groups",
        effect="its limits do not apply there, or others do",
        check=limits.resource_groups_fit,
    ),
    Limit(
        ids=("functions-worker-state",),
        refuses="nothing: it is what a copy cannot carry, the state of functions workers",
        read="the namespace `public/functions`",
        effect="no function comes with a copy of policies; replicated, workers of both clusters share one state",
        check=functions.worker_state_is_named,
    ),
    Limit(
        ids=("protocol-handler-missing",),
        refuses="clients of a protocol for which its brokers have no handler",
        read="`messagingProtocols` of brokers",
        effect="they cannot connect",
        check=functions.handlers_are_installed,
    ),
    Limit(
        ids=("protocol-handler-state",),
        refuses="nothing: it is what a copy cannot carry, the state of a protocol handler",
        read="`messagingProtocols` of the source's brokers, the topics `__consumer_offsets` and `__transaction_state`",
        effect="its handler finds no state, or that of the other cluster",
        check=functions.handler_state_is_named,
    ),
    Limit(
        ids=("value-refused",),
        refuses="values of policies, by the rules of its version",
        read="every policy; see [fidelity](fidelity.md)",
        effect=_NO_POLICY,
        check=target_rules.values_are_accepted,
    ),
    Limit(
        ids=("admin-role-refused",),
        refuses="a role of a tenant's administrators with white space at an end",
        read="`adminRoles`",
        effect=_REFUSED,
        since="4.0",
        check=target_rules.admin_roles_are_accepted,
    ),
    Limit(
        ids=("schema-incompatible", "schema-undecided", "schema-history-differs", "schema-only-on-target"),
        refuses="schemas, by its strategy",
        read="`schema_compatibility_strategy`, the schemas of both",
        effect=_HELD,
        check=schemas.schemas_are_compatible,
        cause="schema-incompatible",
    ),
    Limit(
        ids=("schema-update-off-for-replicator",),
        refuses="schemas that replicators register",
        read="`is_allow_auto_update_schema`, `is_allow_auto_update_schema_with_replicator`",
        effect=_HELD,
        check=schemas.replicators_may_register,
        cause="schema-update-refused",
    ),
    ENCRYPTION,
    DELAY,
    SIZE,
    Limit(
        ids=("max-message-size-smaller",),
        refuses="a message that is larger than its brokers allow",
        read="`maxMessageSize` of brokers",
        effect="replication of the topic stops at the first one",
        check=limits.messages_fit,
        exceeded=_brokers_size,
        cause="message-refused",
    ),
)
"""Every limit of a target, in the order in which a person reads them."""

CARRIED = ("maxProducersPerTopic", "maxConsumersPerTopic", "subscriptionTypesEnabled", "schemaValidationEnforced")
"""Limits of a namespace on the target under which replicators connected and sent (observed, 4.2.4)."""


@dataclass(frozen=True, slots=True)
class MetQuota:
    """A backlog quota of the source that a copy of a topic exceeds.

    :param quota: as it is stored; `call` stores it without a limit.
    """

    evidence: str
    quota: JsonObject
    call: Call


def quotas_met_by_copy(source: Effective, topic: TopicName, stored_bytes: int | None) -> Iterator[MetQuota]:
    """The backlog quotas that a copy of a topic exceeds: its cursor begins at the first stored message, and is backlog.

    So what every subscription has read counts again (observed, 4.2.4): until it is copied, brokers refuse or hold
    producers, or move that cursor.

    :param stored_bytes: of the topic, or of its largest partition; None if it could not be read.
    """
    quotas: JsonObject = source.value(_QUOTAS) or {}
    size, age = quotas.get("destination_storage") or {}, quotas.get("message_age") or {}
    limit, seconds = int(size.get("limitSize") or -1), int(age.get("limitTime") or -1)
    if limit > 0 and (stored_bytes is None or limit <= stored_bytes):
        stored = "an unknown number of" if stored_bytes is None else f"{stored_bytes:,}"
        text = f"{stored} bytes are stored, and the quota is {limit:,} bytes"
        yield _met(source, topic, "destination_storage", size, text)
    minutes = int((source.value("retentionPolicies") or {}).get("retentionTimeInMinutes") or 0)
    if seconds > 0 and stored_bytes != 0 and (minutes < 0 or minutes * 60 >= seconds):
        kept = "without end" if minutes < 0 else f"for {minutes:,} min"
        yield _met(source, topic, "message_age", age, f"messages are kept {kept}, and the quota is {seconds:,} s")


def _met(source: Effective, topic: TopicName, type_: str, quota: JsonObject, text: str) -> MetQuota:
    layer = next(layer for layer, value in source.layers(_QUOTAS).items() if (value or {}).get(type_))
    own = layer in (Layer.LOCAL, Layer.GLOBAL)
    path = f"/{topic.path}" if own else f"/namespaces/{topic.namespace.path}"
    params = {"backlogQuotaType": type_, **({"isGlobal": "true"} if layer is Layer.GLOBAL else {})}
    # Without a policy the default of the brokers counts.
    unlimited = {"limitSize": -1, "limitTime": -1, "policy": quota.get("policy")}
    call = with_body("POST", f"{path}/backlogQuota", unlimited, **params)
    return MetQuota(f"{text}; set by {layer}, policy {quota.get('policy')}", quota, call)
