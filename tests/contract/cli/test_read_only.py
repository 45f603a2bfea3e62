"""`pulsar-fleet serve-read-only`: refused, shown, done, repeated, and taken back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest
from tests.support.shadows import STORED, delivered, make_source
from tests.support.shell import Shell

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_sandbox import Sandbox

DONE, _, USAGE, _, REFUSED = range(5)


async def test_a_topic_is_shown_served_and_taken_away(
    shell: Shell, on_blue: AdminClient, clusters: Sandbox, new_namespace: Callable[[], NamespaceName]
) -> None:
    source = TopicName(new_namespace(), "events")
    readers = NamespaceName(source.namespace.tenant, "readers")
    await make_source(on_blue, clusters["blue"], source)
    command = ("serve-read-only", shell.sides[0], "--topics", source, "--namespace", readers)
    unapproved, same, absent = shell.at_once(
        command,
        (*command[:-1], source.namespace, "--yes"),
        (*command[:3], f"persistent://{source.namespace}/absent", *command[4:], "--dry-run"),
    )
    assert (unapproved.state, same.state, absent.state) == (REFUSED, USAGE, REFUSED)
    assert "source-missing" in absent.out
    dry = shell.run(*command, "--dry-run")
    assert dry.state == DONE, dry.err
    assert f'blue: PUT /admin/v2/{source.path}/shadowTopics ["persistent://{readers}/events"]' in dry.out
    assert await on_blue.namespace(readers) is None

    done = shell.run(*command, "--yes")
    assert done.state == DONE, done.err
    assert "1 topic is served read-only: 1 link is alive, and a reader got a message from 1 of them." in done.out
    again = shell.run(*command, "--yes", "--json")
    assert (again.document["planned"]["changes"], again.document["calls"]) == (0, [])

    gone = shell.run(*command, "--remove", "--yes")
    assert gone.state == DONE, gone.err
    assert "1 shadow topic taken away, after dropping the ledgers of its source." in gone.out
    assert await on_blue.namespace(readers) is None
    await on_blue.put(f"/{source.path}/unload")
    assert await asyncio.to_thread(delivered, clusters["blue"].service_url, source) == STORED


@pytest.mark.long
async def test_a_copy_on_another_cluster_is_shown_made_and_undone(
    shell: Shell,
    on_blue: AdminClient,
    on_green: AdminClient,
    clusters: Sandbox,
    new_namespace: Callable[[], NamespaceName],
) -> None:
    source = TopicName(new_namespace(), "events")
    await make_source(on_blue, clusters["blue"], source)
    await on_blue.post(f"/namespaces/{source.namespace.path}/permissions/writer", ["consume", "produce"])
    command = ("serve-read-only", shell.sides[0], "--topics", source, "--other-cluster", shell.sides[1])
    dry, named, same = shell.at_once(
        (*command, "--dry-run"), (*command, "--namespace", "a/b", "--yes"), (*command[:-1], shell.sides[0], "--yes")
    )
    assert (dry.state, named.state, same.state) == (DONE, USAGE, USAGE), dry.err
    assert "The copy of 1 topic stores" in dry.out
    assert f"In {source.namespace} on green writer may not produce" in dry.out
    assert await on_green.namespace(source.namespace) is None

    done = shell.run(*command, "--yes")
    assert done.state == DONE, done.err
    assert "1 of 1 link are connected and send." in done.out
    grants = (await on_green.namespace(source.namespace) or {})["auth_policies"]["namespace_auth"]
    assert grants == {"writer": ["consume"]}
    assert await asyncio.to_thread(delivered, clusters["green"].service_url, source) == STORED
    undo = re.findall(r"pulsar-fleet (undo \S+)", done.out)
    assert "permissions" in {line.rpartition("/")[2] for line in undo}
    for line in undo:
        shell.undo(line)
    assert await on_green.namespace(source.namespace) is None
    assert await on_blue.get(f"/{source.path}/replication") in (None, [])
