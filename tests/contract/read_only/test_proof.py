"""Shadow topics are compared with their sources, message by message, while producers write."""

from __future__ import annotations

import asyncio

import pytest
from tests.contract.read_only.test_serve import LONG, Serving, serving
from tests.support.shadows import STORED, make_source, publish

from pulsar_fleet.cluster.errors import NotFound, PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.read_only.upkeep import proof
from pulsar_fleet.read_only.upkeep.proof import freeze_served
from pulsar_fleet.verification.messages.verdict import Verdict, Verification
from pulsar_fleet.verification.steps import verify_in_process

__all__ = ["serving"]


async def serve(serving: Serving, *names: str, partitions: int = 2) -> None:
    for name in names:
        await make_source(serving.admin, serving.cluster, serving.topic(name), partitions)
    await serving.admin.post(f"/namespaces/{serving.owner.path}/retention", LONG)
    await serving.serve(*names)


async def verify(serving: Serving) -> Verification:
    request = await freeze_served(serving.admin, serving.readers)
    return await verify_in_process(serving.admin, serving.admin, request)


def reasons(verification: Verification) -> list[str]:
    (namespace,) = verification.namespaces
    return [topic.reason for topic in namespace.topics if topic.reason]


@pytest.mark.long
async def test_sources_and_shadow_topics_are_equal_while_producers_write(serving: Serving) -> None:
    await serve(serving, "events", "payments")
    writing = asyncio.create_task(
        asyncio.to_thread(publish, serving.cluster.service_url, serving.topic("events"), 3000)
    )
    verifications = [await verify(serving) for _ in range(2)]
    await writing
    await serving.admin.put(f"/{serving.topic('events').path}/unload")
    verifications.append(await verify(serving))
    assert [row.verdict for row in verifications] == [Verdict.EQUAL] * 3, [reasons(row) for row in verifications]
    assert verifications[0].messages >= 2 * STORED - 4
    # The first entries of the new ledgers are the only ones that may come later.
    assert verifications[-1].messages >= 2 * STORED + 3000 - 4


async def test_partitions_that_are_not_served_and_ended_links_are_differences(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "_CATCH_UP_SECONDS", 2.0)
    await serve(serving, "events", "payments")
    await serving.admin.post(f"/{serving.topic('payments').path}/partitions", 3)
    source = serving.topic("events")
    await serving.admin.delete(f"/{source.path}/shadowTopics")
    await serving.admin.put(f"/{source.path}/unload")
    await asyncio.to_thread(publish, serving.cluster.service_url, source, 40)
    verification = await verify(serving)
    assert verification.verdict is Verdict.DIFFERENT
    text = " ".join(reasons(verification))
    assert "the shadow topic has no such partition" in text
    assert "entries behind" in text


async def test_an_absent_topic_is_inconclusive_and_one_never_served_is_refused(serving: Serving) -> None:
    await serve(serving, "events")
    await serving.admin.delete(f"/{serving.topic('events').path}/partitions", force=True)
    verification = await verify(serving)
    assert verification.verdict is Verdict.INCONCLUSIVE
    assert reasons(verification) == [f"{serving.topic('events')} does not exist any more"]
    with pytest.raises(PreconditionFailed, match="No topic is served in"):
        await freeze_served(serving.admin, serving.owner)
    with pytest.raises(NotFound, match="has no namespace"):
        await freeze_served(serving.admin, NamespaceName(serving.readers.tenant, "missing"))
