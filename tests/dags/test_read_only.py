"""A topic is served read-only and taken away again, by Airflow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.dag_runs import report, states
from tests.support.shadows import NOTHING_KEPT, STORED, delivered, make_source

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_sandbox import Sandbox

pytestmark = pytest.mark.read_only

Play = Callable[..., Any]


def test_a_topic_is_served_and_taken_away(
    play: Play, blue: ClusterConnection, clusters: Sandbox, new_namespace: Callable[[], NamespaceName]
) -> None:
    source = TopicName(new_namespace(), "events")
    readers = NamespaceName(source.namespace.tenant, "readers")
    service_url = clusters["blue"].service_url

    async def make() -> None:
        async with AdminClient(blue) as admin:
            await make_source(admin, clusters["blue"], source, 2)

    asyncio.run(make())
    conf = {"cluster": "pulsar_blue", "topics": [str(source)], "namespace": str(readers)}
    dry = play("serve_read_only", **conf, dry_run=True)
    assert str(dry.state) == "success"
    assert states(dry)["create_topics"] == "skipped"
    assert f"blue: PUT /admin/v2/{source.path}/shadowTopics" in report(dry)

    done = play("serve_read_only", **conf, auto_approve=True)
    assert set(states(done).values()) == {"success"}
    assert "1 topic is served read-only: 2 links are alive, and a reader got a message from 2 of them." in report(done)
    assert delivered(service_url, TopicName(readers, "events"), "reader") == STORED
    assert states(play("watch_read_only", cluster="pulsar_blue", namespaces=[str(readers)])) == {
        "check_read_only": "success"
    }
    assert last_state("watch_read_only") == "succeeded"
    proven = play("verify_read_only", cluster="pulsar_blue", namespace=str(readers))
    assert set(states(proven).values()) == {"success"}
    # The last entry of an open ledger may come with the next one.
    assert f"# Equal: {STORED} messages on blue and blue ({readers})" in report(proven)
    for follow, after in ((False, "failed"), (True, "success")):
        asyncio.run(lose_retention(blue, readers))
        assert states(play("watch_read_only", cluster="pulsar_blue", namespaces=[str(readers)], follow=follow)) == {
            "check_read_only": "failed"
        }
        assert states(play("watch_read_only", cluster="pulsar_blue", namespaces=[str(readers)], follow=False)) == {
            "check_read_only": after
        }
        assert last_state("watch_read_only") == ("succeeded" if after == "success" else "failed")

    gone = play("serve_read_only", **conf, remove=True, auto_approve=True)
    assert set(states(gone).values()) == {"success"}
    assert "1 shadow topic taken away; the ledgers of its source stay." in report(gone)
    assert delivered(service_url, source) == STORED


async def lose_retention(blue: ClusterConnection, namespace: NamespaceName) -> None:
    """Take the retention as another tool does it, past the guard."""
    async with AdminClient(blue) as admin:
        await admin.http.call("POST", f"/admin/v2/namespaces/{namespace.path}/retention", body=NOTHING_KEPT)


def test_nothing_is_watched_without_a_namespace(play: Play) -> None:
    assert states(play("watch_read_only")) == {"check_read_only": "skipped"}


def test_a_setting_that_cannot_be_fails_the_first_task(play: Play) -> None:
    conf = {"topics": ["persistent://acme/readers/a"], "namespace": "acme/readers"}
    run = play("serve_read_only", **conf)
    assert states(run)["read_request"] == "failed"
    assert "name another namespace for its shadow topic" in report(run)


def last_state(procedure: str) -> str:
    """Of the run that the ledger has of a procedure, by which alerts judge it."""
    return next(run.state for run in Ledger.open().newest_runs(9) if run.procedure == procedure)
