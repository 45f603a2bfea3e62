"""The admin API of one cluster, typed: the calls that the procedures make."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlsplit

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.admin.http import BrokerHttp
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import NotAllowed, NotFound
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName

ADMIN = "/admin/v2"
PARTITIONED_WITH_PROPERTIES = "application/vnd.partitioned-topic-metadata+json"


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """How a topic is cut: `partitions` is 0 for a plain topic."""

    partitions: int
    properties: Mapping[str, str]


class AdminClient:
    """Typed calls to one cluster; use it with `async with`.

    Reads return the broker's documents as they are, so that unknown fields are never lost. Every failure is a
    `FleetError`. Calls are bounded by the connection's `max_connections` and retried while the failure is
    `Unavailable`.

    :param calls_per_second: how many calls begin in a second at most; 0 is no bound.
    """

    def __init__(
        self, connection: ClusterConnection, *, retry_seconds: float = 30.0, calls_per_second: float = 0.0
    ) -> None:
        self.connection = connection
        self.http = BrokerHttp(connection, retry_seconds=retry_seconds, calls_per_second=calls_per_second)
        self._name: str | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.http.__aexit__(kind, error, trace)

    @property
    def calls(self) -> int:
        """HTTP requests so far, with retries and redirects, without the transport's one silent repeat of a cut one."""
        return self.http.calls

    async def turn(self) -> None:
        """Wait until one more request may begin: for those that go to the cluster by another protocol."""
        await self.http.rate_limiter.acquire()

    # The plain verbs, for callers that derive paths from a catalogue.

    async def get(self, path: str, **params: str | int | bool) -> Json:
        """`GET /admin/v2{path}`: the JSON answered, or None for an empty answer."""
        return self.http.document(await self.http.call("GET", ADMIN + path, params=params))

    async def get_v3(self, path: str) -> Json:
        """`GET /admin/v3{path}`, where functions, connectors and packages are."""
        return self.http.document(await self.http.call("GET", "/admin/v3" + path))

    async def put(self, path: str, body: Json = None, **params: str | int | bool) -> None:
        """`PUT /admin/v2{path}` with a JSON body."""
        await self.http.call("PUT", ADMIN + path, params=params, body=body, has_body=body is not None)

    async def post(self, path: str, body: Json = None, **params: str | int | bool) -> None:
        """`POST /admin/v2{path}` with a JSON body."""
        await self.http.call("POST", ADMIN + path, params=params, body=body, has_body=body is not None)

    async def delete(self, path: str, **params: str | int | bool) -> None:
        """`DELETE /admin/v2{path}`."""
        await self.http.call("DELETE", ADMIN + path, params=params)

    async def send(self, call: Call) -> None:
        """Send a planned call as it stands."""
        await self.http.call(
            call.method,
            ADMIN + call.path,
            params=dict(call.params),
            body=call.body,
            has_body=call.has_body,
            content_type=call.content_type,
        )

    # The cluster and its brokers.

    async def cluster_name(self) -> str:
        """The name that the brokers themselves carry (`clusterName`); read once.

        Only a superuser may ask; for another role it is the connection's `cluster_name`, the only cluster known, or the
        label of its metrics.
        """
        if self._name is None:
            try:
                self._name = str((await self.runtime_configuration())["clusterName"])
            except NotAllowed:
                self._name = await self._name_without_rights()
        return self._name

    async def _name_without_rights(self) -> str:
        known, given = await self.clusters(), self.connection.cluster_name
        if given in known:
            return str(given)
        if given is None and len(known) == 1:
            return known[0]
        label = re.search(r'[{,]cluster="([^"]+)"', (await self.http.call("GET", "/metrics/")).text)
        if given is None and label is not None and label[1] in known:
            return label[1]
        raise NotAllowed(
            f"{self.connection.name}: our role may not ask the broker for its cluster's name, which is one of "
            f'{", ".join(known)}, and {given!r} is given: write the name in "cluster_name" of the connection.',
            cluster=self.connection.name,
        )

    async def brokers(self) -> tuple[str, ...]:
        """`host:port` of the web service of every live broker, sorted; they become trusted for redirects."""
        entries = tuple(sorted(await self.get("/brokers")))
        self.http.trust_hosts({host for entry in entries if (host := urlsplit(f"//{entry}").hostname)})
        return entries

    async def runtime_configuration(self, broker: str | None = None) -> dict[str, str]:
        """The effective configuration of one broker: of `broker` (`host:port`), else of whichever answers."""
        base = await self._base(broker) if broker else None
        answer = await self.http.call("GET", f"{ADMIN}/brokers/configuration/runtime", base=base)
        return dict(self.http.document(answer))

    async def version(self, broker: str | None = None) -> str:
        """Pulsar version, such as `4.2.4`, of `broker` (`host:port`), else of whichever answers; any role may ask."""
        base = await self._base(broker) if broker else None
        return (await self.http.call("GET", f"{ADMIN}/brokers/version", base=base)).text.strip()

    async def health(self, broker: str) -> str:
        """`ok` when a message went through `broker` (`host:port`); else its words, or an error. Needs a superuser."""
        answer = await self.http.call("GET", f"{ADMIN}/brokers/health", base=await self._base(broker), patience=0)
        return answer.text.strip()

    async def loaded_topics(self, broker: str) -> str:
        """Stats of all topics that `broker` (`host:port`) has loaded, with their clients, up to a minute old.

        `{namespace: {bundle: {domain: {topic: …}}}}` as text: it may be tens of MB. Needs a superuser.
        """
        answer = await self.http.call("GET", f"{ADMIN}/broker-stats/topics", base=await self._base(broker))
        return answer.text

    async def _base(self, broker: str) -> str:
        if urlsplit(self.connection.admin_url).scheme == "http":
            return f"http://{broker}"
        # Brokers are listed by their plain port even over TLS; a call about a broker is redirected to its TLS port.
        answer = await self.http.call("GET", f"{ADMIN}/brokers/{await self.cluster_name()}/{broker}/ownedNamespaces")
        return f"{answer.url.scheme}://{answer.url.netloc.decode()}"

    async def dynamic_overrides(self) -> dict[str, str]:
        """The dynamic settings that were set by hand, without the defaults."""
        return dict(await self.get("/brokers/configuration/values"))

    async def set_dynamic(self, key: str, value: str) -> None:
        """Override a dynamic setting on every broker. The broker does not check the value: read it back."""
        await self.post(f"/brokers/configuration/{key}/{quote(value, safe='')}")

    async def unset_dynamic(self, key: str) -> None:
        """Remove an override, so that the static value counts again; nothing happens when there was none."""
        await self.delete(f"/brokers/configuration/{key}")

    async def clusters(self) -> tuple[str, ...]:
        """Names of the clusters that this one knows, its own among them."""
        return tuple(sorted(await self.get("/clusters")))

    async def cluster_data(self, name: str) -> JsonObject | None:
        """Addresses of a cluster as this one knows them, None if unknown. **Holds secrets in clear.**"""
        return await self._or_none(f"/clusters/{quote(name, safe='')}")

    async def put_cluster(self, name: str, data: JsonObject) -> None:
        """Make a peer known."""
        await self.put(f"/clusters/{quote(name, safe='')}", data)

    # Tenants and namespaces.

    async def tenants(self) -> tuple[str, ...]:
        """All tenants. Needs a superuser."""
        return tuple(sorted(await self.get("/tenants")))

    async def tenant(self, name: str) -> JsonObject | None:
        """`adminRoles` and `allowedClusters`, or None if there is no such tenant."""
        return await self._or_none(f"/tenants/{quote(name, safe='')}")

    async def namespaces(self, tenant: str) -> tuple[NamespaceName, ...]:
        """The tenant's namespaces."""
        return tuple(
            sorted(NamespaceName.parse(text) for text in await self.get(f"/namespaces/{quote(tenant, safe='')}"))
        )

    async def namespace(self, name: NamespaceName) -> JsonObject | None:
        """The whole policies document, or None if there is no such namespace. **May hold secrets in clear.**"""
        return await self._or_none(f"/namespaces/{name.path}")

    async def put_namespace(self, name: NamespaceName, policies: JsonObject) -> None:
        """Create a namespace with its policies in one call. The broker checks little: validate before."""
        await self.put(f"/namespaces/{name.path}", policies)

    # Topics.

    async def topics(self, namespace: NamespaceName, *, system: bool = False) -> tuple[TopicName, ...]:
        """Every persistent and non-persistent topic, partitions one by one."""
        listed = await self.get(f"/namespaces/{namespace.path}/topics", mode="ALL", includeSystemTopic=system)
        return tuple(sorted(TopicName.parse(text) for text in listed))

    async def partitioned_topics(self, namespace: NamespaceName, *, system: bool = False) -> tuple[TopicName, ...]:
        """The partitioned topics by their own names, those without a partition yet included."""
        listed = await self.get(f"/persistent/{namespace.path}/partitioned", includeSystemTopic=system)
        return tuple(sorted(TopicName.parse(text) for text in listed))

    async def partition_metadata(self, topic: TopicName) -> PartitionMetadata:
        """Partition count and, for a partitioned topic, its properties; no topic is `NotFound`."""
        found = await self.get(f"/{topic.path}/partitions", checkAllowAutoCreation=False)
        return PartitionMetadata(int(found["partitions"]), dict(found.get("properties") or {}))

    async def create_topic(self, topic: TopicName, properties: Mapping[str, str] | None = None) -> None:
        """Create a plain topic."""
        await self.put(f"/{topic.path}", dict(properties or {}))

    async def create_partitioned_topic(
        self, topic: TopicName, partitions: int, properties: Mapping[str, str] | None = None
    ) -> None:
        """Create a partitioned topic on this cluster alone, whatever its namespace replicates to.

        One that exists is left as it is without a word, also with another partition count: read it back.
        """
        await self.http.call(
            "PUT",
            f"{ADMIN}/{topic.path}/partitions",
            params={"createLocalTopicOnly": True},
            body={"partitions": partitions, "properties": dict(properties or {})},
            content_type=PARTITIONED_WITH_PROPERTIES,
        )

    async def internal_info(self, topic: TopicName, *, patience: float | None = None) -> JsonObject:
        """Ledgers, cursors, properties and termination from the metadata store; never loads the topic.

        :param patience: seconds for which an answered failure is tried again: a missing topic is answered like trouble.
        """
        answer = await self.http.call("GET", f"{ADMIN}/{topic.path}/internal-info", patience=patience)
        return dict(self.http.document(answer))

    async def stats(self, topic: TopicName, *, precise: bool = True) -> JsonObject:
        """Producers, consumers and backlog (in entries) of a plain topic or partition. **Loads the topic.**"""
        return dict(await self.get(f"/{topic.path}/stats", getPreciseBacklog=precise))

    async def internal_stats(self, topic: TopicName) -> JsonObject:
        """Ledgers, `lastConfirmedEntry` and cursor positions. **Loads the topic.**"""
        return dict(await self.get(f"/{topic.path}/internalStats"))

    async def entry_properties(self, topic: TopicName, position: Position) -> dict[str, str]:
        """Answer headers that describe one stored entry (`x-pulsar-…`, lower case), without any subscription."""
        answer = await self.http.call("GET", f"{ADMIN}/{topic.path}/ledger/{position.ledger}/entry/{position.entry}")
        return {key.lower(): value for key, value in answer.headers.items() if key.lower().startswith("x-pulsar")}

    # Subscriptions.

    async def create_subscription(self, topic: TopicName, name: str, position: Position | str = "earliest") -> None:
        """Create a subscription so that the entry at `position` is the first it gets (or `earliest`, `latest`)."""
        body: Json = position
        if isinstance(position, Position):
            body = {"ledgerId": position.ledger, "entryId": position.entry, "partitionIndex": -1}
        await self.put(topic.subscription_path(name), body)

    async def delete_subscription(self, topic: TopicName, name: str, *, force: bool = False) -> None:
        """Forget a subscription and its backlog on this cluster."""
        await self.delete(topic.subscription_path(name), force=force)

    # Schemas.

    async def schemas(self, topic: TopicName) -> Sequence[JsonObject]:
        """Every schema version of a topic, oldest first; empty where it has none."""
        found = await self._or_none(f"/schemas/{topic.namespace.path}/{quote(topic.local, safe='')}/schemas")
        versions: list[JsonObject] = (found or {}).get("getSchemaResponses", [])
        return sorted(versions, key=lambda version: int(version["version"]))

    async def post_schema(self, topic: TopicName, schema: JsonObject) -> None:
        """Add a schema version: `{"type", "schema", "properties"}`; the same one again adds nothing."""
        await self.post(f"/schemas/{topic.namespace.path}/{quote(topic.local, safe='')}/schema", schema)

    async def _or_none(self, path: str) -> JsonObject | None:
        try:
            return dict(await self.get(path))
        except NotFound:
            return None
