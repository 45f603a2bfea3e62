"""Topic policies in bulk: one pass over a namespace's `__change_events` instead of some 60 calls per topic."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, Self

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import PermissionDenied, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import POLICY_EVENTS, NamespaceName, TopicName
from pulsar_fleet.cluster.policies.topic_policies import Scope
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.statistics import COMPACTION, cursors_in_stats
from pulsar_fleet.cluster.text import listed
from pulsar_fleet.cluster.versions import KEEPS_TOPIC_POLICIES
from pulsar_fleet.snapshot.model import TopicPolicyState

if TYPE_CHECKING:
    import pulsar

GLOBAL_PREFIX = "__G__"
_READ_TIMEOUT_MS = 20_000
_NEWEST = -1
_SERVICE = "topicPoliciesServiceClassName"
_IN_EVENTS = "SystemTopicBasedTopicPoliciesService"


class History(Protocol):
    """Receives the events of a pass; those of a topic in the order in which they were written."""

    def note(self, topic: str, scope: Scope, state: TopicPolicyState | None, at: int) -> None:
        """Receive one event; None removes the topic's policies of this scope. `at` in ms, by the cluster's clock."""


class TopicPolicyReader:
    """Reads the topic policies of namespaces of one cluster; use it with `async with`.

    Decodes each message with the schema that it was written with, which differs between versions of Pulsar. The role
    needs the right to consume from the namespace's system topic.

    :param redactor: replaces secrets by fingerprints; None keeps them in clear, to write them to another cluster.
    """

    def __init__(self, admin: AdminClient, redactor: Redactor | None) -> None:
        self._admin = admin
        self._redactor = redactor
        self._client: pulsar.Client | None = None
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._client is not None:
            await asyncio.to_thread(self._client.close)

    async def read(self, namespace: NamespaceName, *, history: History | None = None) -> tuple[TopicPolicyState, ...]:
        """The policies of every topic, local and global; empty if none was ever set.

        :param history: receives every event, to find out when a single policy was written.
        :raises PreconditionFailed: a broker of Pulsar 3.0 has compacted the local policies of a topic away; or brokers
            store policies of topics as metadata (PIP-469), where no event has them.
        """
        async with self._opening:
            if self._client is None:
                await self._require_events()
                self._client = await asyncio.to_thread(open_client, self._admin.connection)
        states = await asyncio.to_thread(self._pass, self._client, namespace, history)
        await self._require_local(namespace, states)
        return states

    async def _require_events(self) -> None:
        """One call; a role that may not read the brokers' settings goes on, and these are reported as unread."""
        try:
            configured = (await self._admin.runtime_configuration()).get(_SERVICE, _IN_EVENTS)
        except PermissionDenied:
            return
        if not configured.endswith(_IN_EVENTS):
            name = self._admin.connection.name
            raise PreconditionFailed(
                f"{name}: the policies of topics are not known: its brokers store them by {_SERVICE}="
                f"{configured.rpartition('.')[2]}, and {POLICY_EVENTS} has none of those. They are not copied.",
                cluster=name,
            )

    async def _require_local(self, namespace: NamespaceName, states: Sequence[TopicPolicyState]) -> None:
        """Refuse a topic of which a compaction left the global policies only: Pulsar 3.0 has one key for both."""
        scopes = {scope: {state.topic for state in states if state.scope == scope} for scope in Scope}
        alone = sorted(scopes[Scope.GLOBAL] - scopes[Scope.LOCAL])
        if not alone or KEEPS_TOPIC_POLICIES.holds(await self._admin.version()):
            return
        events = TopicName(namespace, POLICY_EVENTS)
        partitions = events.partitions((await self._admin.partition_metadata(events)).partitions) or (events,)
        for partition in partitions:
            if COMPACTION in cursors_in_stats(await self._admin.internal_stats(partition)):
                name = self._admin.connection.name
                raise PreconditionFailed(
                    f"{name}: the local policies of {listed(alone, 3)} are not known: Pulsar 3.0 compacts them with "
                    "the global ones and keeps those that were set last. Remove the global policies of these "
                    "topics, then set what they should have as local ones again.",
                    cluster=name,
                )

    def _pass(
        self, client: pulsar.Client, namespace: NamespaceName, history: History | None
    ) -> tuple[TopicPolicyState, ...]:
        import pulsar

        topic = f"persistent://{namespace}/{POLICY_EVENTS}"
        newest: dict[tuple[str, Scope], TopicPolicyState] = {}
        try:
            schemas = _Schemas(client, topic)
            if not schemas.any:
                return ()
            for message in _messages(client, topic):
                key, at = message.partition_key(), message.publish_timestamp()
                state = self._state(key, schemas.decode(message), at)
                for scope in _scopes(key, state):
                    newest.pop((key, scope), None)
                    if state is not None:
                        newest[key, scope] = state
                    if history is not None:
                        history.note(key.removeprefix(GLOBAL_PREFIX), scope, state, at)
        except pulsar.PulsarException as error:
            denied = isinstance(error, pulsar.AuthorizationError | pulsar.AuthenticationError)
            raise (PermissionDenied if denied else Unavailable)(
                f"{self._admin.connection.name}: the topic policies of {namespace} cannot be read: {error}.",
                cluster=self._admin.connection.name,
            ) from error
        states = {(state.topic, state.scope): state for state in sorted(newest.values(), key=attrgetter("updated_at"))}
        return tuple(states[name] for name in sorted(states))

    def _state(self, key: str, event: Json, published: int) -> TopicPolicyState | None:
        """An event contains all policies of its topic; an empty event or a DELETE removes them."""
        if not event or event["actionType"] == "DELETE" or not event.get("topicPoliciesEvent"):
            return None
        policies = event["topicPoliciesEvent"]["policies"]
        # Pulsar 3.0 writes both documents of a topic under the same key, and newer brokers read such events too.
        shared = key.startswith(GLOBAL_PREFIX) or policies.get("isGlobal")
        scope = Scope.GLOBAL if shared else Scope.LOCAL
        if self._redactor is not None:
            policies = self._redactor.redact(policies)
        return TopicPolicyState(key.removeprefix(GLOBAL_PREFIX), scope.value, policies, published)


def _scopes(key: str, state: TopicPolicyState | None) -> tuple[Scope, ...]:
    """The scopes that an event is about; where Pulsar 3.0 removes the policies of a topic, it names none."""
    if state is not None:
        return (Scope(state.scope),)
    return (Scope.GLOBAL,) if key.startswith(GLOBAL_PREFIX) else (Scope.LOCAL, Scope.GLOBAL)


def _messages(client: pulsar.Client, topic: str) -> Iterator[pulsar.Message]:
    """The messages of all partitions, by a reader for each: a reader of several partitions says that no message is
    available before it has delivered the last one (observed).
    """
    import pulsar

    for partition in client.get_topic_partitions(topic):
        reader = client.create_reader(partition, pulsar.MessageId.earliest, is_read_compacted=True)
        try:
            while reader.has_message_available():
                yield reader.read_next(_READ_TIMEOUT_MS)
        finally:
            reader.close()


class _Schemas:
    """The schema versions of one topic: after an upgrade of Pulsar a topic has messages of several versions.

    Reads them over the messaging protocol, by a call that `pulsar.Client` does not expose.
    """

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        self._client = client._client
        self._topic = topic
        self._parsed: dict[int, Json] = {}

    @property
    def any(self) -> bool:
        """Whether the topic has a schema; a topic gets its schema before its first message."""
        import pulsar

        try:
            self._client.get_schema_info(self._topic, _NEWEST)
        except pulsar.TopicNotFound:
            return False
        return True

    def decode(self, message: pulsar.Message) -> Json:
        """The event in a message, decoded with the schema that it was written with; None for an empty message."""
        import fastavro

        content = message.data()
        if not content:
            return None
        version = message._message.int_schema_version()
        if version not in self._parsed:
            schema = json.loads(self._client.get_schema_info(self._topic, version).schema())
            self._parsed[version] = fastavro.parse_schema(schema)
        return fastavro.schemaless_reader(io.BytesIO(content), self._parsed[version], None)
