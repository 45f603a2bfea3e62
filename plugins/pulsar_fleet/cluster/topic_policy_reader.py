"""Topic policies in bulk: one pass over a namespace's `__change_events` instead of some 60 calls per topic."""

from __future__ import annotations

import asyncio
import io
import json
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.errors import Missing, Transient
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.secrets import Seal
from pulsar_fleet.cluster.states import TopicPolicyState
from pulsar_fleet.cluster.topic_policies import Scope

if TYPE_CHECKING:
    import pulsar

EVENTS = "__change_events"
GLOBAL_PREFIX = "__G__"
_READ_TIMEOUT_MS = 20_000


class TopicPolicyReader:
    """Reads the topic policies of namespaces of one cluster; use it with `async with`.

    The messages are decoded with that cluster's own schema, since it differs between versions. Reading needs the right
    to consume from the namespace's system topic.

    :param seal: replaces secrets by fingerprints; None keeps them in clear, for writing them to another cluster.
    """

    def __init__(self, admin: AdminClient, seal: Seal | None) -> None:
        self._admin = admin
        self._seal = seal
        self._client: pulsar.Client | None = None
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await asyncio.to_thread(self._client.close)

    async def read(self, namespace: NamespaceName) -> tuple[TopicPolicyState, ...]:
        """Every topic's policies, local and global; empty where none was ever set."""
        try:
            found = await self._admin.get(f"/schemas/{namespace.path}/{EVENTS}/schema")
        except Missing:
            return ()
        async with self._opening:
            if self._client is None:
                self._client = await asyncio.to_thread(_open_client, self._admin)
        return await asyncio.to_thread(self._pass, self._client, namespace, json.loads(found["data"]))

    def _pass(
        self, client: pulsar.Client, namespace: NamespaceName, schema: JsonObject
    ) -> tuple[TopicPolicyState, ...]:
        import fastavro
        import pulsar

        parsed = fastavro.parse_schema(schema)
        newest: dict[str, TopicPolicyState] = {}
        try:
            reader = client.create_reader(
                f"persistent://{namespace}/{EVENTS}", pulsar.MessageId.earliest, is_read_compacted=True
            )
            try:
                while reader.has_message_available():
                    message = reader.read_next(_READ_TIMEOUT_MS)
                    key, content = message.partition_key(), message.data()
                    newest.pop(key, None)
                    event = fastavro.schemaless_reader(io.BytesIO(content), parsed, None) if content else None
                    state = self._state(key, event, message.publish_timestamp())
                    if state is not None:
                        newest[key] = state
            finally:
                reader.close()
        except pulsar.PulsarException as error:
            raise Transient(
                f"{self._admin.connection.name}: the topic policies of {namespace} cannot be read: {error}.",
                cluster=self._admin.connection.name,
            ) from error
        return tuple(newest[key] for key in sorted(newest))

    def _state(self, key: str, event: Json, published: int) -> TopicPolicyState | None:
        """One event holds all policies of its topic; an empty one, and a DELETE, means that there are none."""
        if not event or event["actionType"] == "DELETE" or not event.get("topicPoliciesEvent"):
            return None
        scope = Scope.GLOBAL if key.startswith(GLOBAL_PREFIX) else Scope.LOCAL
        policies = event["topicPoliciesEvent"]["policies"]
        if self._seal is not None:
            policies = self._seal.redact(policies)
        return TopicPolicyState(key.removeprefix(GLOBAL_PREFIX), scope.value, policies, published)


def _open_client(admin: AdminClient) -> pulsar.Client:
    import pulsar

    connection = admin.connection
    token = connection.read_token()
    return pulsar.Client(
        connection.require_service_url(),
        authentication=pulsar.AuthenticationToken(token) if token else None,
        tls_trust_certs_file_path=connection.tls_trust_file,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
