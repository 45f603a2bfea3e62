"""`pulsar-fleet serve-read-only`: refused, shown, done, repeated, and taken back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest
from tests.support.migration import forget_migrations
from tests.support.shadows import STORED, delivered, make_source
from tests.support.shell import Shell

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.cutover.redirect import redirect_to, set_flag, store_redirect
from pulsar_fleet.snapshot.resources import is_terminated
from pulsar_sandbox import Sandbox

DONE, ERROR, USAGE, _, REFUSED, PARTLY = range(6)


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
    again, proven, elsewhere = shell.at_once(
        (*command, "--yes", "--json"),
        ("verify-read-only", shell.sides[0], "--namespace", readers, "--json"),
        ("verify-read-only", shell.sides[0], "--namespace", source.namespace),
    )
    assert (again.document["planned"]["changes"], again.document["calls"]) == (0, [])
    assert (proven.state, proven.document["verdict"]) == (DONE, "equal"), proven.err
    assert (elsewhere.state, "No topic is served in" in elsewhere.err) == (REFUSED, True), elsewhere.err

    gone = shell.run(*command, "--remove", "--yes")
    assert gone.state == DONE, gone.err
    assert "1 shadow topic taken away; the ledgers of its source stay." in gone.out
    assert await on_blue.namespace(readers) is None
    await on_blue.put(f"/{source.path}/unload")
    assert await asyncio.to_thread(delivered, clusters["blue"].service_url, source) == STORED


@pytest.mark.cluster
async def test_a_topic_that_a_migration_ended_is_refused_and_its_place_named(
    shell: Shell,
    on_blue: AdminClient,
    on_green: AdminClient,
    clusters: Sandbox,
    new_namespace: Callable[[], NamespaceName],
) -> None:
    source = TopicName(new_namespace(), "events")
    readers = NamespaceName(source.namespace.tenant, "readers")
    blue, green = shell.sides
    await make_source(on_blue, clusters["blue"], source)
    command = ("serve-read-only", blue, "--topics", source)
    assert shell.run(*command, "--namespace", readers, "--yes").state == DONE
    await store_redirect(on_blue, "blue", redirect_to(on_green.connection))
    await set_flag(on_blue, source.namespace, migrated=True)
    async with asyncio.timeout(20):
        while not is_terminated(await on_blue.internal_info(source)):
            await asyncio.sleep(0.2)
    await on_blue.put(f"/{source.path}/unload")
    try:
        forward = ("forward-acknowledgments", blue, "--once", "--yes", "--namespace")
        inside, copy, forwarded, absent = shell.at_once(
            (*command, "--namespace", readers, "--yes"),
            (*command, "--other-cluster", green, "--yes"),
            (*forward, readers),
            (*forward, f"{readers}-absent"),
        )
        taken = shell.run(*command, "--namespace", readers, "--remove", "--yes")
    finally:
        await forget_migrations(on_blue)
    where = f"{source.namespace} is flagged as migrated on blue: blue redirects its clients to localhost"
    assert (inside.state, copy.state, forwarded.state, absent.state) == (REFUSED, REFUSED, PARTLY, ERROR)
    assert "source-migrated" in inside.out
    assert where in " ".join(inside.out.split())
    assert where in " ".join(copy.err.split())
    assert f"is not forwarded: {where}, and subscriptions" in " ".join(forwarded.out.split())
    assert f"blue has no namespace {readers}-absent: correct the name" in " ".join(absent.err.split())
    assert (taken.state, await on_blue.namespace(readers)) == (DONE, None)


async def test_a_copy_of_a_terminated_topic_is_refused_before_anything_changes(
    shell: Shell, on_blue: AdminClient, clusters: Sandbox, new_namespace: Callable[[], NamespaceName]
) -> None:
    source = TopicName(new_namespace(), "events")
    blue, green = shell.sides
    await make_source(on_blue, clusters["blue"], source, 2)
    await on_blue.post(f"/{source.path}/terminate/partitions")
    copy, replicated = shell.at_once(
        ("serve-read-only", blue, "--topics", source, "--other-cluster", green, "--yes"),
        ("replicate", blue, "--receive-only", green, "--topics", source, "--dry-run"),
    )
    assert copy.state == REFUSED
    assert f"{source}-partition-0 is terminated on blue: a copy would get what is stored, and nothing new" in copy.err
    assert "source-topic-terminated" in replicated.out
    assert await on_blue.get(f"/{source.path}/replication") is None


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


@pytest.mark.long
async def test_a_killed_command_goes_on_by_resume_inside_and_elsewhere(
    shell: Shell,
    on_blue: AdminClient,
    on_green: AdminClient,
    clusters: Sandbox,
    new_namespace: Callable[[], NamespaceName],
) -> None:
    source = TopicName(new_namespace(), "events")
    readers = NamespaceName(source.namespace.tenant, "readers")
    await make_source(on_blue, clusters["blue"], source)
    await on_blue.post(f"/namespaces/{source.namespace.path}/permissions/writer", ["consume", "produce"])
    command = ("serve-read-only", shell.sides[0], "--topics", source)
    inside = shell.killed(*command, "--namespace", readers, "--yes", after="link_topics")
    copy = shell.killed(*command, "--other-cluster", shell.sides[1], "--yes", after="link_topics")
    runs = [
        *re.findall(r"cli/serve-read-only-[\w-]+", inside)[:1],
        *re.findall(r"cli/serve-read-only-[\w-]+", copy)[:1],
    ]
    served, copied = (shell.run("serve-read-only", "--resume", run, "--yes", "--json") for run in runs)
    assert (served.state, copied.state) == (DONE, DONE), served.err + copied.err
    assert "create_topics" not in served.err + copied.err
    assert (served.document["confirmed"]["links"], "remove_topics" in served.document) == (1, False)
    assert (copied.document["links"]["links"], copied.document["links"]["broken"]) == (1, [])
    undone = [line.rpartition("/")[2] for line in copied.document["undo"]]
    assert {"permissions", "green", "blue"} == {*undone}
    assert undone.index("permissions") < undone.index("green")
    for line in copied.document["undo"]:
        shell.undo(line.removeprefix("pulsar-fleet "))
    assert await on_green.namespace(source.namespace) is None
    assert await asyncio.to_thread(delivered, clusters["blue"].service_url, TopicName(readers, "events")) == STORED
