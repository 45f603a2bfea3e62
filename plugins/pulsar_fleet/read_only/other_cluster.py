"""Serve readers on another cluster, which has a copy and where nobody may produce.

The copy itself is geo-replication in one direction, which `replication/` sets up. Here is what is asked for, what it
costs, what prevents it, and how producing is denied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD
from pulsar_fleet.cluster.statistics import is_replicator
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.apply.outcome import StepResult
from pulsar_fleet.planning.changes.namespaces import setting
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.read_only.brokers import amount
from pulsar_fleet.read_only.observe import partitions_of
from pulsar_fleet.read_only.recorded_calls import apply_recorded
from pulsar_fleet.read_only.request import topics_of
from pulsar_fleet.snapshot.resources import is_terminated, read_migrated_to

_GRANTS = "auth_policies"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRequest:
    """Which topics are copied to which cluster for its readers.

    :param source: connection of the cluster that has the topics; `target` of the one for readers.
    """

    source: str
    target: str
    topics: tuple[TopicName, ...]

    @classmethod
    def of(cls, conf: JsonObject) -> Self:
        """Read the settings of a form or a command.

        :raises InvalidRequest: no topic, a topic that cannot be served, or a setting that only shadow topics have.
        """
        source, target = conf["cluster"], conf["other_cluster"]
        if source == target:
            raise InvalidRequest(
                f"'other_cluster' is {target!r}, the cluster itself: leave it empty for shadow topics."
            )
        if conf.get("namespace"):
            raise InvalidRequest(
                f"'namespace' is {conf['namespace']!r}, but readers find a copy under the names of its topics: leave "
                "it empty with 'other_cluster'."
            )
        if conf.get("brokers"):
            raise InvalidRequest("'brokers' are of shadow topics: leave it empty with 'other_cluster'.")
        if conf.get("remove"):
            raise InvalidRequest(
                "'remove' takes shadow topics away. A copy on another cluster ends with replicate_namespaces: name "
                f"{target!r} in its 'leaving'; what it has stored stays there."
            )
        return cls(source=source, target=target, topics=topics_of(conf.get("topics") or ()))

    def replication(self) -> JsonObject:
        """The settings of `replication.request.Request`: one direction, with what is stored already."""
        return {
            "clusters": [self.source],
            "receive_only": [self.target],
            "leaving": [],
            "topics": [str(topic) for topic in self.topics],
            "history": True,
        }

    @property
    def namespaces(self) -> tuple[NamespaceName, ...]:
        """The namespaces of the topics."""
        return tuple(dict.fromkeys(topic.namespace for topic in self.topics))


async def check_copy(source: AdminClient, target: AdminClient, request: CopyRequest) -> list[str]:
    """Refuse where applications produce on the other cluster; what a copy costs and ends, a sentence each.

    :raises PreconditionFailed: see `_require_open` and `_require_no_producers`.
    """
    await _require_open(source, request)
    await _require_no_producers(target, request)
    cost = await _cost(source, request, await target.cluster_name())
    return [*cost, *await _denial_lines(source, target, request)]


async def _require_open(source: AdminClient, request: CopyRequest) -> None:
    """Refuse topics that accept no more messages: a copy would get nothing new.

    Calls: two for each namespace, one for each topic and one for each partition.

    :raises PreconditionFailed: a migration ended the namespace of a topic there, or the topic is terminated.
    """
    for namespace in request.namespaces:
        if migration := await read_migrated_to(source, namespace, await source.namespace(namespace) or {}):
            raise PreconditionFailed(
                f"{migration}. A copy of its topics would get nothing new. Copy them from the cluster to which they "
                "were migrated, or finish or abort that migration first. Nothing has been changed.",
                cluster=source.connection.name,
            )
    for topic in request.topics:
        for partition in topic.partitions(await partitions_of(source, topic) or 0):
            if is_terminated(await source.internal_info(partition)):
                raise PreconditionFailed(
                    f"{partition} is terminated on {await source.cluster_name()}: a copy would get what is stored, and "
                    "nothing new. Copy the topic from the cluster on which applications publish to it now. Nothing has "
                    "been changed.",
                    cluster=source.connection.name,
                )


async def _cost(admin: AdminClient, request: CopyRequest, target: str) -> tuple[str, ...]:
    """What a copy stores and sends, beside shadow topics, a sentence each. It loads the topics.

    Calls: one for each topic and one for each partition.

    :param target: the name of the other cluster.
    """
    stored = incoming = outgoing = 0.0
    for topic in request.topics:
        for partition in topic.partitions(await partitions_of(admin, topic) or 0):
            stats = await admin.stats(partition, precise=False)
            stored += float(stats.get("storageSize") or 0)
            incoming += float(stats.get("msgThroughputIn") or 0)
            outgoing += float(stats.get("msgThroughputOut") or 0)
    own, topics = await admin.cluster_name(), counted(len(request.topics), "topic")
    return (
        f"The copy of {topics} stores {amount(stored)} again on {target}, and what its retention keeps from then on.",
        f"Replicators send {amount(incoming)}/s from {own} to {target} at the present rate, however many readers there "
        "are.",
        f"Brokers of {own} send {amount(outgoing)}/s to subscriptions of {topics} now; those that move are sent theirs "
        f"by brokers of {target}.",
        f"Shadow topics would store nothing again, on brokers of {own}; but a broker deletes data of their sources if "
        "somebody lowers their retention with another tool. A copy has no such risk.",
    )


async def _denial_lines(source: AdminClient, target: AdminClient, request: CopyRequest) -> list[str]:
    """Whose permission to produce ends on the other cluster, a sentence for each namespace; two calls for each."""
    own, lines = await target.cluster_name(), []
    for namespace in request.namespaces:
        documents = [await admin.namespace(namespace) or {} for admin in (source, target)]
        grants = [(document.get(_GRANTS) or {}).get("namespace_auth") or {} for document in documents]
        roles = sorted({role for granted in grants for role, actions in granted.items() if "produce" in actions})
        who = f"{listed(roles)} may not" if roles else "no role is given the right to"
        lines.append(f"In {namespace} on {own} {who} produce; superusers and administrators of the tenant may.")
    return lines


async def _require_no_producers(target: AdminClient, request: CopyRequest) -> None:
    """Refuse to deny producing where applications produce: on any topic of the namespaces on the other cluster.

    It loads the topics. Calls: two for each namespace, one for each of its topics.

    :raises PreconditionFailed: a producer is connected that is not a replicator; nothing was changed.
    """
    for namespace in request.namespaces:
        if await target.namespace(namespace) is None:
            continue
        for topic in await target.topics(namespace):
            if topic.is_system:
                continue
            stats = await target.stats(topic, precise=False)
            names = [str(producer.get("producerName")) for producer in stats.get("publishers") or ()]
            own = [name for name in names if not is_replicator(name)]
            if own:
                cluster = await target.cluster_name()
                raise PreconditionFailed(
                    f"{counted(len(own), 'producer')} of applications publish to {topic} on {cluster} (first "
                    f"{own[0]!r}), and nobody may produce in a namespace that serves readers. Move these "
                    "applications, or serve readers on another cluster. Nothing has been changed.",
                    cluster=target.connection.name,
                )


async def deny_producing(target: AdminClient, request: CopyRequest, run: Run) -> StepResult:
    """Take every permission to produce in the namespaces on the other cluster; a second call changes nothing.

    Superusers, tenant administrators and the brokers' own role may produce all the same. The ledger has the change as
    a run of its own, which `pulsar-fleet undo` takes back.

    :raises FleetError: a change failed; a second call does what is left.
    """
    calls, own, changes = target.calls, await target.cluster_name(), []
    for namespace in request.namespaces:
        before = comparable(await target.namespace(namespace) or {}, own).get(_GRANTS) or {}
        after = without_producing(before)
        if after != before:
            reason = "nobody may produce where a copy serves readers"
            changes.append(setting(BY_FIELD[_GRANTS], str(namespace), before, after, reason))
    if changes:
        plan = Plan(source="the topics to serve", target=own, changes=tuple(changes))
        await apply_recorded(target, plan, run, "permissions")
    return StepResult(changes=len(changes), calls=target.calls - calls, seconds=0.0)


def without_producing(grants: JsonObject) -> JsonObject:
    """The same rights without those to produce, in comparable form: of namespaces and of single topics."""
    roles = {role: _kept(actions) for role, actions in (grants.get("namespace_auth") or {}).items()}
    topics = {
        topic: {role: kept for role, actions in granted.items() if (kept := _kept(actions))}
        for topic, granted in (grants.get("destination_auth") or {}).items()
    }
    sections = {
        **grants,
        "namespace_auth": {role: actions for role, actions in roles.items() if actions},
        "destination_auth": {topic: granted for topic, granted in topics.items() if granted},
    }
    return {section: entries for section, entries in sections.items() if entries}


def _kept(actions: Sequence[str]) -> list[Json]:
    return [action for action in actions if action != "produce"]
