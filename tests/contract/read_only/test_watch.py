"""Topics that are served read-only are watched: a lost retention, a dead link, a reader that is behind."""

from __future__ import annotations

import asyncio

import pytest
from tests.contract.read_only.test_serve import LONG, Serving, serving
from tests.support.shadows import NOTHING_KEPT, STORED, make_source, publish

from pulsar_fleet.read_only.upkeep import watch
from pulsar_fleet.read_only.upkeep.watch import ServedTopic, alarms, watch_namespace

__all__ = ["serving"]


async def look(serving: Serving, lag_minutes: int = 60) -> tuple[ServedTopic, dict[str, str]]:
    (topic,), findings = await watch_namespace(serving.admin, serving.readers, lag_minutes)
    return topic, {finding.id: finding.consequence for finding in alarms(findings)}


async def serve(serving: Serving) -> None:
    await make_source(serving.admin, serving.cluster, serving.topic("events"), 2)
    await serving.admin.post(f"/namespaces/{serving.owner.path}/retention", LONG)
    await serving.serve("events")


async def test_nothing_is_wrong_with_a_topic_that_is_served(serving: Serving) -> None:
    await serve(serving)
    await asyncio.to_thread(publish, serving.cluster.service_url, serving.topic("events"))
    topic, problems = await look(serving)
    assert problems == {}
    assert (topic.links, topic.alive, topic.unsent, topic.retained_minutes) == (2, 2, 0, 90.0)
    assert "2 of 2 links alive, 0 entries unsent" in topic.text()


async def test_a_lowered_retention_is_an_alarm_that_names_the_source(serving: Serving) -> None:
    await serve(serving)
    path = f"/admin/v2/namespaces/{serving.readers.path}/retention"
    await serving.admin.http.call("POST", path, body=NOTHING_KEPT)
    _, problems = await look(serving)
    assert f"Data of {serving.topic('events')} will be deleted" in problems["retention-not-infinite"]


async def test_a_link_that_ended_is_an_alarm(serving: Serving) -> None:
    await serve(serving)
    source = serving.topic("events")
    await serving.admin.delete(f"/{source.path}/shadowTopics")
    await serving.admin.put(f"/{source.path}/unload")
    _, problems = await look(serving)
    assert set(problems) == {"link-not-alive"}
    await serving.serve("events")
    assert (await look(serving))[1] == {}


async def test_a_reader_is_reported_before_the_source_forgets_its_backlog(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    await serve(serving)
    await serving.admin.create_subscription(serving.shadow("events"), "slow")
    topic, problems = await look(serving)
    assert 0 < topic.lag_minutes["slow"] < 5
    assert problems == {}
    now = watch.time.time()
    for minutes, id_ in ((65, "reader-behind"), (85, "reader-near-retention")):
        monkeypatch.setattr(watch.time, "time", lambda minutes=minutes: now + 60 * minutes)
        assert set((await look(serving))[1]) == {id_}
    monkeypatch.undo()
    assert await serving.received("events", "slow") == STORED
