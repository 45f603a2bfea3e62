"""A typed client of one cluster's admin API, with the calls that the procedures need."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Self
from urllib.parse import quote, urlsplit

import httpx

from pulsar_fleet.cluster.admin.call import PARTITIONED_WITH_PROPERTIES, Call, PartitionMetadata
from pulsar_fleet.cluster.admin.http import BrokerHttp
from pulsar_fleet.cluster.admin.scalable_topics import guard_scalable_topics
from pulsar_fleet.cluster.admin.verbs import ADMIN, AdminVerbs
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, NotAllowed, NotFound, PreconditionFailed
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName, own_topic_properties
from pulsar_fleet.cluster.versions import deletes_shadows_alone

_AT_ONCE, _ROUNDS = 4, 5


class BrokerUrls:
    """URLs of brokers by `host:port`, the name under which brokers list each other; each is found once.

    The connection's `broker_urls` come first. Without TLS the name is the address. With TLS the list has plain ports
    all the same, and a broker that is asked about another one redirects to its TLS port. A broker that is asked about
    itself does not: then nothing tells whether the admin URL leads to this broker or through a balancer to any, so its
    address is asked of another broker. A balancer chooses a broker for each connection, so these calls close theirs,
    and one broker is sought after the other: calls about two brokers that take turns each got a connection to its own.
    """

    def __init__(
        self,
        http: BrokerHttp,
        cluster_name: Callable[[], Awaitable[str]],
        brokers: Callable[[], Awaitable[Sequence[str]]],
    ) -> None:
        self._http = http
        self._cluster_name = cluster_name
        self._brokers = brokers
        self._found: dict[str, str] = {}
        self._one_at_a_time = asyncio.Lock()

    async def find(self, broker: str) -> str:
        """The URL of a broker; `PreconditionFailed` if no other broker tells it: not absent, but unknown."""
        connection = self._http.connection
        if configured := connection.broker_url(broker):
            return configured
        if urlsplit(self._http.admin_url).scheme == "http":
            return f"http://{broker}"
        async with self._one_at_a_time:
            if broker not in self._found:
                self._found[broker] = await self._ask(broker)
        return self._found[broker]

    async def _ask(self, broker: str) -> str:
        if url := await self._redirect(broker):
            return url
        others = [other for other in await self._brokers() if other != broker]
        if not others:
            return self._http.admin_url
        for _ in range(_ROUNDS):
            if url := await self._redirect_of_any(broker):
                return url
            for other in others:
                neighbour = await self._redirect_of_any(other)
                if neighbour and (url := await self._redirect(broker, neighbour)):
                    return url
        name = self._http.connection.name
        raise PreconditionFailed(
            f"{name}: the address of broker {broker} is not known, since every call about a broker was answered at "
            f'{self._http.admin_url}, as a proxy does: name it in the connection, "broker_urls": '
            f'{{"{broker}": "https://host:port"}}.',
            cluster=name,
        )

    async def _redirect_of_any(self, broker: str) -> str | None:
        """The redirect of any of several calls at once: a balancer leads their connections to different brokers."""
        answers = await asyncio.gather(*(self._redirect(broker) for _ in range(_AT_ONCE)))
        return next(filter(None, answers), None)

    async def _redirect(self, broker: str, base: str | None = None) -> str | None:
        """Where a call about a broker is answered, if that is not where it was sent."""
        path = f"/admin/v2/brokers/{await self._cluster_name()}/{broker}/ownedNamespaces"
        answer = (await self._http.call("GET", path, base=base, keep_alive=False)).url
        sent_to = httpx.URL(base or self._http.admin_url)
        return None if answer.netloc == sent_to.netloc else f"{answer.scheme}://{answer.netloc.decode()}"


class AdminClient(AdminVerbs):
    """Typed calls to one cluster; use it with `async with`.

    Reads return the broker's documents unchanged, so that unknown fields are never lost. Every failure is a
    `FleetError`. The connection's `max_connections` limits concurrent calls; `Unavailable` failures are retried.

    :param retry_seconds: for how long an `Unavailable` failure is retried before it is raised.
    :param calls_per_second: rate limit of calls; 0 is no limit.
    """

    def __init__(
        self, connection: ClusterConnection, *, retry_seconds: float = 30.0, calls_per_second: float = 0.0
    ) -> None:
        self.connection = connection
        http = BrokerHttp(connection, retry_seconds=retry_seconds, calls_per_second=calls_per_second)
        super().__init__(http, self.deletes_shadows_alone)
        self._urls = BrokerUrls(self.http, self.cluster_name, self.brokers)
        self._name: str | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.http.__aexit__(*error)

    @property
    def calls(self) -> int:
        """HTTP requests so far, with retries and redirects, without the transport's own repeat of a cut request."""
        return self.http.calls

    async def send(self, call: Call) -> None:
        """Send a planned call; it raises what `AdminVerbs.send` and `guard_scalable_topics` raise."""
        await guard_scalable_topics(self, call)
        await super().send(call)

    async def wait_for_rate_limit(self) -> None:
        """Wait for the rate limit: for requests to the cluster over another protocol."""
        await self.http.rate_limiter.acquire()

    # The cluster and its brokers.

    async def cluster_name(self) -> str:
        """The cluster's name in the configuration of its brokers (`clusterName`); read once.

        Needs a superuser; for another role the name is the connection's `cluster_name`, the only known cluster, or the
        cluster label of the broker's metrics.
        """
        if self._name is None:
            try:
                self._name = str((await self.runtime_configuration())["clusterName"])
            except NotFound as error:
                url = f"{self.http.admin_url}{ADMIN}/brokers/configuration/runtime"
                raise self.http.no_broker("GET", url, "was answered with 404") from error
            except NotAllowed:
                self._name = await self._name_without_rights()
        return self._name

    async def _name_without_rights(self) -> str:
        names, configured = await self.clusters(), self.connection.cluster_name
        if configured in names:
            return str(configured)
        if configured is None and len(names) == 1:
            return names[0]
        label = re.search(r'[{,]cluster="([^"]+)"', (await self.http.call("GET", "/metrics/")).text)
        if configured is None and label is not None and label[1] in names:
            return label[1]
        raise NotAllowed(
            f"{self.connection.name}: our role may not read the cluster's name, which is one of {', '.join(names)}; "
            f'the connection has {configured!r}: write the name in "cluster_name" of the connection.',
            cluster=self.connection.name,
        )

    async def brokers(self) -> tuple[str, ...]:
        """`host:port` of the web service of every live broker, sorted; redirects to them get the token from now on."""
        entries = tuple(sorted(await self.get("/brokers")))
        self.http.trust_hosts({host for entry in entries if (host := urlsplit(f"//{entry}").hostname)})
        return entries

    async def runtime_configuration(self, broker: str | None = None) -> dict[str, str]:
        """The effective configuration of `broker` (`host:port`), or of the broker that answers. Needs a superuser."""
        base = await self.broker_url(broker) if broker else None
        answer = await self.http.call("GET", f"{ADMIN}/brokers/configuration/runtime", base=base)
        return dict(self.http.document(answer))

    async def version(self, broker: str | None = None) -> str:
        """Pulsar version, such as `4.2.4`, of `broker` (`host:port`), or of the broker that answers. Needs no right."""
        base = await self.broker_url(broker) if broker else None
        return (await self.http.call("GET", f"{ADMIN}/brokers/version", base=base)).text.strip()

    async def deletes_shadows_alone(self) -> bool:
        """Whether every broker deletes a shadow topic without ledgers of its source, by its own version.

        One call where the broker that answers does not; else two, and one for each broker.
        """
        if not deletes_shadows_alone(await self.version()):
            return False
        versions = await asyncio.gather(*(self.version(broker) for broker in await self.brokers()))
        return all(map(deletes_shadows_alone, versions))

    async def health(self, broker: str) -> str:
        """`ok` when `broker` (`host:port`) passed a message on; else its text, or an error. Needs a superuser."""
        base = await self.broker_url(broker)
        answer = await self.http.call("GET", f"{ADMIN}/brokers/health", base=base, answered_retry_seconds=0)
        return answer.text.strip()

    async def loaded_topics(self, broker: str) -> str:
        """Stats of all loaded topics of `broker` (`host:port`), with their clients, up to a minute old.

        `{namespace: {bundle: {domain: {topic: …}}}}` as text, since it may be tens of MB. Needs a superuser.
        """
        answer = await self.http.call("GET", f"{ADMIN}/broker-stats/topics", base=await self.broker_url(broker))
        return answer.text

    async def broker_url(self, broker: str) -> str:
        """The URL at which `broker` (`host:port`) answers for itself."""
        return await self._urls.find(broker)

    async def dynamic_overrides(self) -> dict[str, str]:
        """The overrides of dynamic settings, without defaults."""
        return dict(await self.get("/brokers/configuration/values"))

    async def set_dynamic(self, key: str, value: str) -> None:
        """Override a dynamic setting on every broker. The broker does not validate the value: read it back."""
        await self.post(f"/brokers/configuration/{key}/{quote(value, safe='')}")

    async def unset_dynamic(self, key: str) -> None:
        """Remove an override, so that the static value is in effect again; without an override this does nothing."""
        await self.delete(f"/brokers/configuration/{key}")

    async def isolation_policies(self) -> dict[str, JsonObject]:
        """The namespace isolation policies of this cluster by name. Needs a superuser."""
        name = quote(await self.cluster_name(), safe="")
        # A cluster that never had one answers 404.
        return await self._or_none(f"/clusters/{name}/namespaceIsolationPolicies") or {}

    async def clusters(self) -> tuple[str, ...]:
        """Names of the clusters that are registered on this cluster, its own included."""
        return tuple(sorted(await self.get("/clusters")))

    async def cluster_data(self, name: str) -> JsonObject | None:
        """The data of a registered cluster, None if it is not registered. **Contains secrets in clear.**"""
        return await self._or_none(f"/clusters/{quote(name, safe='')}")

    async def put_cluster(self, name: str, data: JsonObject) -> None:
        """Register a peer cluster."""
        await self.put(f"/clusters/{quote(name, safe='')}", data)

    async def tenants(self) -> tuple[str, ...]:
        """All tenants. Needs a superuser."""
        return tuple(sorted(await self.get("/tenants")))

    async def tenant(self, name: str) -> JsonObject | None:
        """`adminRoles` and `allowedClusters`, None if the tenant does not exist."""
        return await self._or_none(f"/tenants/{quote(name, safe='')}")

    async def namespaces(self, tenant: str) -> tuple[NamespaceName, ...]:
        """The tenant's namespaces, sorted."""
        listed = await self.get(f"/namespaces/{quote(tenant, safe='')}")
        return tuple(sorted(map(NamespaceName.parse, listed)))

    async def namespace(self, name: NamespaceName) -> JsonObject | None:
        """The policies document, None if the namespace does not exist. **May contain secrets in clear.**"""
        return await self._or_none(f"/namespaces/{name.path}")

    async def put_namespace(self, name: NamespaceName, policies: JsonObject) -> None:
        """Create a namespace with its policies in one call. The broker validates little: validate before."""
        await self.put(f"/namespaces/{name.path}", policies)

    async def topics(self, namespace: NamespaceName, *, system: bool = False) -> tuple[TopicName, ...]:
        """Every persistent and non-persistent topic; a partitioned topic is listed by its partitions."""
        listed = await self.get(f"/namespaces/{namespace.path}/topics", mode="ALL", includeSystemTopic=system)
        return tuple(sorted(TopicName.parse(text) for text in listed))

    async def partitioned_topics(self, namespace: NamespaceName) -> tuple[TopicName, ...]:
        """The partitioned topics without system topics, including those whose partitions do not exist yet."""
        listed = await self.get(f"/persistent/{namespace.path}/partitioned", includeSystemTopic=False)
        return tuple(sorted(TopicName.parse(text) for text in listed))

    async def partition_metadata(self, topic: TopicName) -> PartitionMetadata:
        """Partition count and, for a partitioned topic, its properties; a missing topic is `NotFound`."""
        metadata = await self.get(f"/{topic.path}/partitions", checkAllowAutoCreation=False)
        return PartitionMetadata(int(metadata["partitions"]), own_topic_properties(metadata.get("properties")))

    async def owner(self, topic: TopicName, *, answered_retry_seconds: float | None = None) -> str:
        """`host:port` of the broker that owns a plain topic or partition. It gives a bundle without owner to one.

        :param answered_retry_seconds: for how long an answered failure is retried: without a broker it is answered 503.
        """
        answer = await self.http.call(
            "GET", f"/lookup/v2/topic/{topic.path}", answered_retry_seconds=answered_retry_seconds
        )
        addresses = self.http.document(answer) or {}
        keys = ("httpUrl", "httpUrlTls", "brokerUrl", "brokerUrlTls", "brokerUrlSsl")
        return next((urlsplit(addresses[key]).netloc for key in keys if addresses.get(key)), "")

    async def owned_bundles(self, broker: str) -> list[str]:
        """The bundles that a broker (`host:port`) owns, each as `tenant/namespace/begin_end`."""
        return list(await self.get(f"/brokers/{await self.cluster_name()}/{broker}/ownedNamespaces") or ())

    async def bundle(self, topic: TopicName) -> str:
        """The bundle of a topic, such as `0x00000000_0x40000000`."""
        answer = await self.http.call("GET", f"/lookup/v2/topic/{topic.path}/bundle")
        return answer.text.strip().strip('"')

    async def create_topic(self, topic: TopicName, properties: Mapping[str, str] | None = None) -> None:
        """Create a plain topic."""
        await self.put(f"/{topic.path}", dict(properties or {}))

    async def create_partitioned_topic(
        self, topic: TopicName, partitions: int, properties: Mapping[str, str] | None = None
    ) -> None:
        """Create a partitioned topic on this cluster only, even if its namespace is replicated.

        For an existing topic the call has no effect, also with another partition count: read it back. Pulsar 3.0
        answers it with 409, newer brokers accept it.
        """
        with suppress(Conflict):
            await self.send(
                Call(
                    "PUT",
                    f"/{topic.path}/partitions",
                    (("createLocalTopicOnly", "true"),),
                    {"partitions": partitions, "properties": dict(properties or {})},
                    content_type=PARTITIONED_WITH_PROPERTIES,
                )
            )

    async def create_missing_partitions(self, topic: TopicName) -> None:
        """Create the partitions that a partitioned topic lacks, also where automatic creation is off."""
        await self.post(f"/{topic.path}/createMissedPartitions")

    async def internal_info(self, topic: TopicName, *, answered_retry_seconds: float | None = None) -> JsonObject:
        """Ledgers, cursors, properties and termination from the metadata store; never loads the topic.

        :param answered_retry_seconds: for how long an answered failure is retried: a missing topic is answered 500.
        """
        return dict(await self.get(f"/{topic.path}/internal-info", answered_retry_seconds=answered_retry_seconds))

    async def stats(
        self, topic: TopicName, *, precise: bool = True, answered_retry_seconds: float | None = None
    ) -> JsonObject:
        """Producers, consumers and backlog (in entries) of a plain topic or partition. **Loads the topic.**"""
        path, seconds = f"/{topic.path}/stats", answered_retry_seconds
        return dict(await self.get(path, answered_retry_seconds=seconds, getPreciseBacklog=precise))

    async def internal_stats(self, topic: TopicName) -> JsonObject:
        """Ledgers, `lastConfirmedEntry` and cursor positions. **Loads the topic.**"""
        return dict(await self.get(f"/{topic.path}/internalStats"))

    async def entry_properties(self, topic: TopicName, position: Position) -> dict[str, str]:
        """Response headers that describe one stored entry (`x-pulsar-…`, lower case); needs no subscription."""
        answer = await self.http.call("GET", f"{ADMIN}/{topic.path}/ledger/{position.ledger}/entry/{position.entry}")
        return {key.lower(): value for key, value in answer.headers.items() if key.lower().startswith("x-pulsar")}

    async def create_subscription(
        self, topic: TopicName, name: str, position: Position | str = "earliest", properties: JsonObject | None = None
    ) -> None:
        """Create a subscription whose first entry is at `position`, `earliest` or, without properties, `latest`."""
        body: Json = position
        if properties and position == "earliest":
            position = Position(-1, -1)
        if isinstance(position, Position):
            body = {"ledgerId": position.ledger, "entryId": position.entry, "partitionIndex": -1}
            body["properties"] = properties or {}
        await self.put(topic.subscription_path(name), body)

    async def delete_subscription(self, topic: TopicName, name: str, *, force: bool = False) -> None:
        """Delete a subscription and its backlog on this cluster."""
        await self.delete(topic.subscription_path(name), force=force)

    async def schemas(self, topic: TopicName) -> Sequence[JsonObject]:
        """Every schema version of a topic, oldest first; empty if it has none."""
        answer = await self._or_none(f"{topic.schema_path}/schemas")
        versions: list[JsonObject] = (answer or {}).get("getSchemaResponses", [])
        return sorted(versions, key=lambda version: int(version["version"]))

    async def post_schema(self, topic: TopicName, schema: JsonObject) -> None:
        """Add a schema version: `{"type", "schema", "properties"}`; an existing version is not added again."""
        await self.post(f"{topic.schema_path}/schema", schema)

    async def _or_none(self, path: str) -> JsonObject | None:
        try:
            return dict(await self.get(path))
        except NotFound:
            return None
