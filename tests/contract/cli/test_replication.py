"""`pulsar-fleet replicate`: refused, shown, done, repeated, and undone by the commands that it prints."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from tests.support.data_centres import make_origin
from tests.support.replication import know_each_other
from tests.support.shell import Shell

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import NamespaceName

DONE, _, USAGE, _, REFUSED, _, INCONCLUSIVE = range(7)


@pytest.mark.long
async def test_replication_is_shown_made_and_undone(
    shell: Shell, on_blue: AdminClient, on_green: AdminClient, new_namespace: Callable[[], NamespaceName]
) -> None:
    namespace = new_namespace()
    # Data that the run creates cannot be taken away again while tenants of other tests allow the cluster.
    await know_each_other(on_blue, on_green)
    await make_origin(on_blue, namespace)
    command = ("replicate", *shell.sides, "--namespaces", namespace)
    unapproved, twice, nothing = shell.at_once(
        command,
        ("replicate", *shell.sides, "--leaving", shell.sides[0], "--namespaces", namespace, "--yes"),
        ("replicate", *shell.sides, "--yes"),
    )
    assert (unapproved.state, twice.state, nothing.state) == (REFUSED, USAGE, USAGE)
    assert "no terminal to ask on" in unapproved.err
    dry = shell.run(*command, "--dry-run")
    assert dry.state == DONE, dry.err
    assert f'blue: POST /admin/v2/namespaces/{namespace.path}/replication ["blue", "green"]' in dry.out
    assert await on_green.namespace(namespace) is None

    done = shell.run(*command, "--yes")
    assert done.state == DONE, done.err
    assert "8 of 8 links are connected and send." in done.out
    again = shell.run(*command, "--yes", "--json")
    assert (again.document["planned"]["changes"], again.document["undo"]) == (0, [])

    proven, older, nothing = shell.at_once(
        ("verify-replication", *shell.sides, "--select", namespace, "--json"),
        ("verify-replication", *shell.sides, "--select", namespace, "--max-proof-age-hours", "0.0000001"),
        ("verify-replication", *shell.sides, "--select", f"{namespace}-absent"),
    )
    assert (proven.state, proven.document["verdict"]) == (DONE, "equal"), proven.err
    assert [proof.partition(":")[0] for proof in proven.document["proofs"]] == [
        f"{namespace} blue → green",
        f"{namespace} green → blue",
    ]
    assert (older.state, "Proofs are too old or missing:" in older.out) == (INCONCLUSIVE, True)
    assert (nothing.state, nothing.out.strip()) == (DONE, "Nothing is replicated between these clusters."), nothing.err

    for line in re.findall(r"pulsar-fleet (undo \S+)", done.out):
        shell.undo(line)
    assert (await on_blue.namespace(namespace) or {})["replication_clusters"] == ["blue"]
    assert await on_green.namespace(namespace) is None


@pytest.mark.long
async def test_a_killed_command_is_repeated_to_its_end(
    shell: Shell, on_blue: AdminClient, on_green: AdminClient, new_namespace: Callable[[], NamespaceName]
) -> None:
    namespace = new_namespace()
    await make_origin(on_blue, namespace)
    command = ("replicate", *shell.sides, "--namespaces", namespace, "--yes")
    shell.killed(*command, after="apply_contents")
    killed = shell.killed(*command, after="start_links")
    (run_id,) = {*re.findall(r"cli/replicate-[\w-]+", killed)}
    resumed = shell.run("replicate", "--resume", run_id, "--yes")
    assert (resumed.state, "apply_contents" in resumed.err) == (DONE, False), resumed.err
    assert "8 of 8 links are connected and send." in resumed.out
    assert f"pulsar-fleet undo {run_id}/contents/green" in resumed.out
    done = shell.run(*command, "--json")
    assert done.state == DONE, done.err
    assert (done.document["links"]["links"], done.document["links"]["broken"]) == (8, [])
    for admin in (on_blue, on_green):
        assert {*(await admin.namespace(namespace) or {})["replication_clusters"]} == {"blue", "green"}


@pytest.mark.long
async def test_a_blocker_stops_the_command(
    shell: Shell, on_blue: AdminClient, on_green: AdminClient, new_namespace: Callable[[], NamespaceName]
) -> None:
    namespace = new_namespace()
    events, _ = await make_origin(on_blue, namespace)
    await make_origin(on_green, namespace)
    await on_green.post(f"/{events.path}/partitions", 5, updateLocalTopicOnly=True)
    command = ("replicate", *shell.sides, "--namespaces", namespace)
    done, dry, document = shell.at_once((*command, "--yes"), (*command, "--dry-run"), (*command, "--yes", "--json"))
    assert (done.state, dry.state, document.state) == (REFUSED,) * 3
    assert "partitions-differ" in done.out
    assert "The calls, in their order:" in dry.out
    assert [row["id"] for row in document.document["findings"] if row["severity"] == "blocker"] == ["partitions-differ"]
    assert (await on_blue.namespace(namespace) or {})["replication_clusters"] == ["blue"]
