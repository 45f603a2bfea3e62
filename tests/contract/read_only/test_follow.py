"""Shadow topics follow their sources: partitions, schemas, permissions; a lost retention is restored."""

from __future__ import annotations

import asyncio

import pulsar
import pytest
from pulsar.schema import AvroSchema, Integer, Record, String
from tests.contract.read_only.test_serve import LONG, Serving, serving
from tests.support.shadows import FOREVER, NOTHING_KEPT, STORED, make_source, publish

from pulsar_fleet.ledger.run import Run
from pulsar_fleet.read_only.upkeep.follow import Followed, follow_sources
from pulsar_fleet.read_only.upkeep.watch import alarms, watch_namespace

__all__ = ["serving"]


class First(Record):
    name = String()


class Second(Record):
    name = String()
    age = Integer(required_default=True)


async def follow(serving: Serving) -> tuple[Followed, Run]:
    serving.runs += 1
    run = Run.open(f"watch/{serving.readers.tenant}-{serving.runs}")
    return await follow_sources(serving.admin, serving.readers, 60, run), run


async def serve(serving: Serving, *names: str, partitions: int = 2) -> None:
    for name in names or ("events",):
        await make_source(serving.admin, serving.cluster, serving.topic(name), partitions)
    await serving.admin.post(f"/namespaces/{serving.owner.path}/retention", LONG)
    await serving.serve(*names or ("events",))


async def problems(serving: Serving) -> set[str]:
    _, findings = await watch_namespace(serving.admin, serving.readers, 60)
    return {finding.id for finding in alarms(findings)}


def write(serving: Serving, *values: Record) -> None:
    client = pulsar.Client(serving.cluster.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    for value in values:
        producer = client.create_producer(str(serving.topic("events")), schema=AvroSchema(type(value)))
        producer.send(value)
        producer.close()
    client.close()


def decoded(serving: Serving, schema: type[Record], count: int, subscription: str) -> list[str]:
    client = pulsar.Client(serving.cluster.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(
        str(serving.shadow("events")),
        subscription,
        schema=AvroSchema(schema),
        initial_position=pulsar.InitialPosition.Earliest,
    )
    names = [consumer.receive(timeout_millis=5000).value().name for _ in range(count)]
    client.close()
    return names


async def test_partitions_that_a_source_gets_are_served_from_their_first_message(serving: Serving) -> None:
    await serve(serving)
    source = serving.topic("events")
    await serving.admin.post(f"/{source.path}/partitions", 4)
    await asyncio.to_thread(publish, serving.cluster.service_url, source, 40)
    assert await serving.findings("events") == {}
    followed, run = await follow(serving)
    assert followed.changes == 2
    assert (await serving.admin.partition_metadata(serving.shadow("events"))).partitions == 4
    await asyncio.to_thread(publish, serving.cluster.service_url, source, 40)
    # The last entry of an open ledger may come with the next one.
    assert STORED + 76 <= await serving.received("events") <= STORED + 80
    assert await problems(serving) == set()
    assert await serving.owner_receives("events") == STORED + 80
    assert [row.outcome for row in run.ledger.changes(f"{run.id}/{serving.readers}/contents")] == ["applied"]
    again, run = await follow(serving)
    assert again.changes == 0
    assert run.ledger.run(f"{run.id}/{serving.readers}") is None
    assert (await serving.serve("events"))[0].plan.changes() == ()


async def test_readers_decode_every_message_with_the_schemas_of_the_source(serving: Serving) -> None:
    admin = serving.admin
    # Makes the namespace; messages without a schema are in another topic.
    await make_source(admin, serving.cluster, serving.topic("other"))
    await admin.put(f"/namespaces/{serving.owner.path}/schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE")
    await admin.create_topic(serving.topic("events"))
    await admin.create_subscription(serving.topic("events"), "owner")
    await asyncio.to_thread(write, serving, First(name="one"))
    await serving.serve("events")
    assert len(await admin.schemas(serving.shadow("events"))) == 1
    await asyncio.to_thread(write, serving, Second(name="two", age=2), First(name="three"), First(name="four"))
    followed, _ = await follow(serving)
    assert followed.changes == 1
    numbers = [schema["version"] for schema in await admin.schemas(serving.shadow("events"))]
    assert numbers == [schema["version"] for schema in await admin.schemas(serving.topic("events"))]
    for schema in (First, Second):
        names = await asyncio.to_thread(decoded, serving, schema, 3, schema.__name__)
        assert names == ["one", "two", "three"]
    assert (await follow(serving))[0].changes == 0


async def test_a_schema_that_is_on_the_shadow_topic_alone_is_reported(serving: Serving) -> None:
    await serve(serving)
    schema = {"type": "STRING", "schema": "", "properties": {}}
    await serving.admin.post_schema(serving.shadow("events"), schema)
    finding = (await serving.findings("events"))["schemas-differ"]
    assert "1 schema version, which is not the first of the 0 of the source" in finding.evidence
    assert (await follow(serving))[0].changes == 0
    assert await problems(serving) == {"schemas-differ"}


async def test_a_role_that_may_consume_from_the_source_by_now_may_read(serving: Serving) -> None:
    await serve(serving)
    await serving.admin.post(f"/namespaces/{serving.owner.path}/permissions/analytics", ["consume", "produce"])
    followed, _ = await follow(serving)
    assert followed.changes == 1
    document = await serving.admin.namespace(serving.readers) or {}
    assert document["auth_policies"]["namespace_auth"] == {"analytics": ["consume"]}
    await serving.admin.delete(f"/namespaces/{serving.owner.path}/permissions/analytics")
    assert (await follow(serving))[0].changes == 0
    _, findings = await watch_namespace(serving.admin, serving.readers, 60)
    assert "take the permission of analytics" in {finding.id: finding.remedy for finding in findings}["role-only-here"]
    assert alarms(findings) == ()


async def test_a_retention_that_somebody_else_lowered_is_restored(serving: Serving) -> None:
    await serve(serving)
    namespace, shadow = f"/admin/v2/namespaces/{serving.readers.path}", f"/admin/v2/{serving.shadow('events').path}"
    await serving.admin.http.call("POST", f"{namespace}/retention", body=NOTHING_KEPT)
    await serving.admin.http.call("POST", f"{shadow}/retention", body=NOTHING_KEPT)
    async with asyncio.timeout(30):
        while "topic-retention-not-infinite" not in await serving.findings("events"):
            await asyncio.sleep(0.2)
    followed, run = await follow(serving)
    assert followed.restored == (str(serving.readers), str(serving.shadow("events")))
    assert f"the retention of {serving.readers}, {serving.shadow('events')} is -1/-1 again" in followed.text()
    document = await serving.admin.namespace(serving.readers) or {}
    assert document["retention_policies"] == FOREVER
    assert {row.before["retentionSizeInMB"] for row in run.ledger.changes(f"{run.id}/{serving.readers}")} == {0}
    async with asyncio.timeout(30):
        while await problems(serving):
            await asyncio.sleep(0.2)
    assert (await follow(serving))[0] == Followed(namespace=serving.readers)
    assert await serving.owner_receives("events") == STORED


@pytest.mark.long
async def test_a_topic_with_a_problem_is_left_alone_and_the_others_follow(serving: Serving) -> None:
    await serve(serving, "events", "gone", "ended")
    await serving.admin.delete(f"/{serving.topic('gone').path}/partitions", force=True)
    await serving.admin.post(f"/{serving.topic('ended').path}/terminate/partitions")
    await serving.admin.post(f"/{serving.topic('events').path}/partitions", 3)
    assert (await follow(serving))[0].changes == 2
    assert (await serving.admin.partition_metadata(serving.shadow("events"))).partitions == 3
    assert await problems(serving) == {"source-missing", "source-terminated"}
    assert await serving.received("ended") == STORED
    await serving.serve("gone", remove=True)
    await serving.serve("ended", remove=True)
    assert await problems(serving) == set()


async def test_a_namespace_that_this_procedure_did_not_make_is_left_alone(serving: Serving) -> None:
    await make_source(serving.admin, serving.cluster, serving.topic("events"))
    before = await serving.admin.namespace(serving.owner)
    run = Run.open(f"watch/{serving.readers.tenant}")
    assert await follow_sources(serving.admin, serving.owner, 60, run) == Followed(namespace=serving.owner)
    assert await serving.admin.namespace(serving.owner) == before
