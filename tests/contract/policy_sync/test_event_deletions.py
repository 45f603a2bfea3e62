"""Deletions by events between two real clusters: pending, approved, refused while in use, overruled by a later edit."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.event_exchange import Exchange, until
from tests.support.fleets import airflow_connection
from tests.support.partitioned_topics import partitions, produce
from tests.support.reconciler import MAX_CONSUMERS, MAX_PRODUCERS, held, set_policy

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.reconciliation_store import ReconciliationStore
from pulsar_fleet.policy_sync.events.results import SyncSummary
from pulsar_fleet.policy_sync.merge.deletion_plan import EDIT_WINS, PendingDeletions, PropagateDeletes
from pulsar_fleet.report.metadata import lines, metrics

pytestmark = [pytest.mark.versions, pytest.mark.cluster]

APPROVE = PropagateDeletes.APPROVE


def waiting(summary: SyncSummary, cluster: str) -> PendingDeletions:
    pending = summary.clusters[cluster].pending_deletions
    assert pending is not None, summary
    return pending


async def approve(exchange: Exchange, cluster: str = "blue") -> SyncSummary:
    """What a person does who reads the report of a run and allows the batch."""
    batch = waiting(await exchange.run(), cluster)
    return await exchange.run(propagate_deletes=APPROVE, allow=frozenset({batch.id}))


@pytest.fixture
async def topic(on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange) -> TopicName:
    """A partitioned topic that both clusters have."""
    topic = TopicName(shared, "orders")
    await on_blue.create_partitioned_topic(topic, 2, {"owner": "sales"})
    await exchange.settle()
    return topic


async def test_a_deletion_waits_with_its_command_until_its_batch_is_approved(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange, topic: TopicName
) -> None:
    new = NamespaceName(shared.tenant, "new")
    await on_green.put(f"/namespaces/{new.path}", {"replication_clusters": ["green"], MAX_PRODUCERS[1]: 3})
    await exchange.settle()
    await on_green.delete(f"/{topic.path}/partitions")
    await on_green.delete(f"/namespaces/{new.path}")
    for _ in range(2):
        summary = await exchange.run()
        pending = waiting(summary, "blue")
        assert pending.resources == (f"topic {topic}: deleted on green", f"namespace {new}: deleted on green")
        assert [tally.refused for tally in summary.clusters.values()] == [0, 0]
        assert metrics(summary)["pending_deletions"] == 2
        assert any(pending.command in line for line in lines(summary))
    assert (await partitions(on_blue, topic), await held(on_blue, new, (MAX_PRODUCERS[1],))) == (
        2,
        {MAX_PRODUCERS[1]: 3},
    )
    without_id = await exchange.run(propagate_deletes=APPROVE)
    never = await exchange.run(allow=frozenset({pending.id}))
    assert [summary.clusters["blue"].deleted for summary in (without_id, never)] == [0, 0]
    summary = await exchange.run(propagate_deletes=APPROVE, allow=frozenset({pending.id}))
    assert (summary.clusters["blue"].deleted, summary.clusters["blue"].not_deleted) == (2, [])
    assert (await partitions(on_blue, topic), await on_blue.namespace(new)) == (-1, None)
    await exchange.settle()
    summary = await exchange.run(snapshot=True)
    assert [tally.pending_deletions for tally in summary.clusters.values()] == [None, None]
    assert [await partitions(admin, topic) for admin in (on_blue, on_green)] == [-1, -1]


@pytest.mark.long
async def test_the_command_line_asks_for_a_batch_and_stores_the_answer(
    on_blue: AdminClient,
    on_green: AdminClient,
    exchange: Exchange,
    topic: TopicName,
    monkeypatch: pytest.MonkeyPatch,
    records: Path,
) -> None:
    for connection in exchange.connections:
        monkeypatch.setenv(f"AIRFLOW_CONN_{connection.name.upper()}", airflow_connection(connection))
    await on_green.delete(f"/{topic.path}/partitions")
    command = waiting(await exchange.run(), "blue").command
    words = [sys.executable, "-m", "pulsar_fleet.cli", *shlex.split(command)[1:]]
    completed = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert completed.returncode != 0, "without a terminal nobody can be asked"
    assert await partitions(on_blue, topic) == 2
    without_id = [word for at, word in enumerate(words) if "--allow" not in words[max(at - 1, 0) : at + 1]]
    for answers, remaining in ((("n",), 2), (("y", "n"), 2), (("y", "y"), -1)):
        state, output = await asyncio.to_thread(answered, without_id, *answers)
        assert await partitions(on_blue, topic) == remaining, output
        assert ("Delete 1 resource on blue?" in output, state == 0) == (len(answers) == 2, answers[0] == "y"), output
    ledger = Ledger.open()
    approvals = [fact.content for run in ledger.runs_with_facts("approval") for fact in ledger.facts(run, "approval")]
    assert sorted(approval["answer"].split()[0] for approval in approvals) == ["Approve", "Reject"]


@pytest.mark.long
async def test_the_printed_command_deletes_after_one_question_what_its_id_names(
    on_blue: AdminClient,
    on_green: AdminClient,
    exchange: Exchange,
    topic: TopicName,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for connection in exchange.connections:
        monkeypatch.setenv(f"AIRFLOW_CONN_{connection.name.upper()}", airflow_connection(connection))
    await on_green.delete(f"/{topic.path}/partitions")
    command = waiting(await exchange.run(), "blue").command
    words = [sys.executable, "-m", "pulsar_fleet.cli", *shlex.split(command)[1:]]
    state, output = await asyncio.to_thread(answered, words, "y")
    assert (state, await partitions(on_blue, topic)) == (0, -1), output


def answered(words: list[str], *answers: str) -> tuple[int, str]:
    """The exit state of a command and what it says, where a person answers its questions on a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(words, stdin=theirs, stderr=theirs, stdout=theirs, close_fds=True) as process:
        os.close(theirs)
        os.write(ours, "".join(f"{answer}\n" for answer in answers).encode())
        output = b""
        with suppress(OSError):
            while part := os.read(ours, 4096):
                output += part
    os.close(ours)
    return process.returncode, output.decode()


@pytest.mark.long
async def test_a_topic_in_use_is_not_deleted_and_keeps_waiting(
    on_blue: AdminClient, on_green: AdminClient, exchange: Exchange, topic: TopicName, blue: ClusterConnection
) -> None:
    await on_green.delete(f"/{topic.path}/partitions")
    client = open_client(blue)
    producer = client.create_producer(str(topic))
    summary = await approve(exchange)
    (reason,) = summary.clusters["blue"].not_deleted
    assert re.search(r"connected client, first producer", reason), reason
    producer.close()
    client.subscribe(str(topic), "billing").close()
    produce(blue, topic)
    client.close()
    summary = await approve(exchange)
    (reason,) = summary.clusters["blue"].not_deleted
    assert "has a backlog: 1 entry in subscription 'billing'" in reason
    assert await partitions(on_blue, topic) == 2
    await on_blue.post(f"/{topic.path}/subscription/billing/skip_all")
    summary = await approve(exchange)
    assert (summary.clusters["blue"].not_deleted, await partitions(on_blue, topic)) == ([], -1)


@pytest.mark.long
async def test_an_edit_after_a_deletion_wins_and_is_reported(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange, topic: TopicName
) -> None:
    new = NamespaceName(shared.tenant, "new")
    await on_blue.put(f"/namespaces/{new.path}", {"replication_clusters": ["blue"], MAX_PRODUCERS[1]: 3})
    await exchange.settle()
    await on_green.delete(f"/{topic.path}/partitions")
    await on_green.delete(f"/namespaces/{new.path}")
    await exchange.run()
    await on_blue.post(f"/{topic.path}/partitions", 4)
    await set_policy(on_blue, new, MAX_CONSUMERS[0], 7)
    summary = await exchange.run()
    expected = {MAX_PRODUCERS[1]: 3, MAX_CONSUMERS[1]: 7}
    assert [await held(admin, new, expected) for admin in (on_blue, on_green)] == [expected, expected]
    assert [await partitions(admin, topic) for admin in (on_blue, on_green)] == [4, 4]
    conflicts = summary.clusters["green"].kept_edits
    assert len(conflicts) == 2, summary
    assert all("the edit wins" in conflict for conflict in conflicts)
    recorded = {
        conflict.name: conflict for _, conflict in ReconciliationStore(Ledger.open(), summary.fleet).conflicts()
    }
    assert {*recorded} == {str(topic), str(new)}
    assert {(conflict.rule, conflict.winner) for conflict in recorded.values()} == {(EDIT_WINS, "blue")}
    assert [tally.pending_deletions for tally in summary.clusters.values()] == [None, None]
    await exchange.settle()


@pytest.mark.long
async def test_a_resource_edited_while_its_deletion_waited_is_not_deleted(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange, topic: TopicName
) -> None:
    await on_green.delete(f"/{topic.path}/partitions")
    batch = waiting(await exchange.run(), "blue")
    await on_blue.put(f"/{topic.path}/properties", {"owner": "billing"})
    summary = await exchange.run(propagate_deletes=APPROVE, allow=frozenset({batch.id}))
    assert (summary.clusters["blue"].deleted, await partitions(on_blue, topic)) == (0, 2)
    await exchange.run()
    assert await partitions(on_green, topic) == 2


@pytest.mark.long
async def test_a_tenant_is_deleted_after_its_namespaces(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    await on_green.delete(f"/namespaces/{shared.path}")
    await on_green.delete(f"/tenants/{shared.tenant}")
    summary = await exchange.run()
    resources = waiting(summary, "blue").resources
    assert [text.split(":")[0] for text in resources] == [f"namespace {shared}", f"tenant {shared.tenant}"]
    summary = await approve(exchange)
    assert (summary.clusters["blue"].deleted, await on_blue.tenant(shared.tenant)) == (2, None)


@pytest.mark.long
async def test_rights_and_policies_are_removed_without_an_approval(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    await on_green.create_topic(TopicName(shared, "orders"))
    await exchange.run_until_older(on_green, TopicName(shared, "orders"))
    for admin in (on_blue, on_green):
        await admin.post(f"/namespaces/{shared.path}/permissions/writer", ["produce"])
        await set_policy(admin, shared, MAX_PRODUCERS[0], 5)
    await exchange.settle()
    await on_green.delete(f"/namespaces/{shared.path}/permissions/writer")
    await set_policy(on_green, shared, MAX_PRODUCERS[0], None)
    summary = await exchange.run()
    document = await on_blue.namespace(shared) or {}
    assert document["auth_policies"]["namespace_auth"] == {}
    assert document.get(MAX_PRODUCERS[1]) is None
    assert [tally.pending_deletions for tally in summary.clusters.values()] == [None, None]


@pytest.mark.long
async def test_a_follower_and_its_successor_list_what_waits_and_ask_nobody(
    on_blue: AdminClient, on_green: AdminClient, exchange: Exchange, topic: TopicName, records: Path
) -> None:
    def listed() -> int:
        logs = [log.read_text() for log in records.glob("follower-*.log")]
        words = (f"topic {topic}: deleted on green", "--propagate-deletes approve --allow")
        return sum(all(word in log for word in words) for log in logs)

    with exchange.follower(records, propagate_deletes="approve"):
        await on_green.delete(f"/{topic.path}/partitions")
        await asyncio.to_thread(until, lambda: listed() == 1, "the follower lists the deletion")
    with exchange.follower(records):
        await asyncio.to_thread(until, lambda: listed() == 2, "the next one lists it too")
    assert await partitions(on_blue, topic) == 2
