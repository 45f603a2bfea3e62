"""The brokers of the new cluster are upgraded one after the other while each procedure runs.

A run need not survive that by itself: a step may fail while a broker restarts, up to the cut-over. These tests prove
that the procedure ends in the way that its page describes, and that nothing is lost; their logs have the way.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.disturbances import TASKS
from tests.support.fleets import build_redirectable, connection
from tests.support.kinds import StartClusters
from tests.support.outcomes import DONE, check, done, ended, windows
from tests.support.shell import Said, Shell

from pulsar_fleet.cli.terminal import ExitState
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_sandbox import Sandbox
from pulsar_sandbox.workload import EstateSpec, Traffic, build_estate

log = logging.getLogger(__name__)

OLD, NEW = "4.0.7", "4.2.4"
NAMES = ("blue", "green")
RATE = 20.0
TRY_AGAIN = {ExitState.ERROR, ExitState.PARTLY, ExitState.INCONCLUSIVE}
AFTER_CUT_OVER = {*TASKS[TASKS.index("cut_over") + 1 :], "clean_up_green", "restore_green"}
KEEP_ALIVE_SECONDS = 30
# Of unloaded topics nothing can be compared.
COMPARABLE = "--no-unload-terminated-topics"
"""After this time without an answer a client closes its connection."""


@dataclass
class Upgrade:
    """Upgrades green's brokers, in a thread, from the line on in which a run says that a step begins."""

    sandbox: Sandbox
    after: str
    progress: list[str] = field(default_factory=list)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _brokers: list[Future[None]] = field(default_factory=list)

    def saw(self, line: str) -> None:
        self.progress.append(line)
        if line.startswith(self.after) and not self._brokers:
            self._brokers = [self._pool.submit(self.sandbox.upgrade, "green", broker, NEW) for broker in (0, 1)]

    def finish(self) -> None:
        assert len(self._brokers) == 2, f"the run did not say {self.after}: {self.progress}"
        for broker in self._brokers:
            broker.result()
        self._pool.shutdown()


@pytest.fixture
def fleet(tmp_path: Path, start_clusters: StartClusters) -> Iterator[Sandbox]:
    """Two clusters of the older version, two brokers each."""
    with start_clusters(tmp_path / "sandbox", clusters=NAMES, version=OLD, brokers=2) as sandbox:
        yield sandbox


def watched(shell: Shell, upgrade: Upgrade, *words: object) -> Said:
    """A command whose lines on stderr the upgrade follows."""
    output = shell.folder / "stdout"
    with (
        output.open("w") as out,
        subprocess.Popen(
            shell.command(*words),
            env=shell.environment,
            cwd=shell.folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            upgrade.saw(line)
    return Said(process.returncode, output.read_text(), "".join(lines))


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("after", ["check_gates", "start_replication", "verify_copy"])
async def test_a_migration_ends_under_a_rolling_upgrade_by_itself_or_resumed(
    fleet: Sandbox, records: Path, new_namespace: Callable[[], NamespaceName], after: str
) -> None:
    """By itself, resumed after a step up to the cut-over failed, or begun again where green has copies twice."""
    live = new_namespace()
    blue, green = (connection(fleet[name]) for name in NAMES)
    shell, upgrade = Shell.between(records, blue, green), Upgrade(fleet, after)
    await build_estate(blue, EstateSpec(live=str(live), tenants=1, namespaces_per_tenant=1, history=60))
    with Traffic.start(blue, namespace=live, folder=records / "traffic", rate=RATE) as traffic:
        words = ("migrate", *shell.sides, "--namespaces", live, COMPARABLE, "--yes", "--json")
        completed = await asyncio.to_thread(watched, shell, upgrade, *words)
        await asyncio.to_thread(upgrade.finish)
        if completed.state != DONE:
            await require_untouched(blue, live, completed)
            completed = await asyncio.to_thread(resumed, shell, completed, words)
        if completed.state != DONE:
            # Blue sends a message again that a broker stored and did not confirm before it was stopped.
            assert "the target has more copies than the source" in completed.err, completed.err
            await require_untouched(blue, live, completed)
            completed = await asyncio.to_thread(begun_again, shell, completed, words)
        run = ended(completed)
        tally = await asyncio.to_thread(traffic.stop)
    check(tally, windows(run, live))
    # A broker of the older version does not end a producer's wait when the throttle is lifted.
    assert tally.publish_pauses[0][1].milliseconds < KEEP_ALIVE_SECONDS * 1_000, tally.text()
    verified = done(await asyncio.to_thread(shell.run, "verify", *shell.sides, "--namespace", live, "--json"))
    assert verified["verdict"] == "equal", verified


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_failback_ends_under_a_rolling_upgrade_by_itself_or_resumed(
    fleet: Sandbox, records: Path, new_namespace: Callable[[], NamespaceName]
) -> None:
    """By itself, or resumed after a step up to the cut-over failed."""
    live = new_namespace()
    blue, green = (connection(fleet[name]) for name in NAMES)
    shell, upgrade = Shell.between(records, blue, green), Upgrade(fleet, "check_failback")
    await build_redirectable(blue, live)
    by_redirect = (*shell.sides, "--namespaces", live, "--strategy", "redirect", "--yes", "--json")
    ended(await asyncio.to_thread(shell.run, "migrate", *by_redirect))
    words = ("fail-back", *by_redirect, "--allow-removal")
    with Traffic.start(green, namespace=live, folder=records / "traffic", rate=RATE, restart_seconds=8) as traffic:
        completed = await asyncio.to_thread(watched, shell, upgrade, *words)
        await asyncio.to_thread(upgrade.finish)
        if completed.state != DONE:
            await require_untouched(green, live, completed)
            completed = await asyncio.to_thread(resumed, shell, completed, words)
        run = ended(completed)
        tally = await asyncio.to_thread(traffic.stop)
    check(tally, windows(run, live))
    assert [await is_flagged(cluster, live) for cluster in (blue, green)] == [False, True]


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_the_other_procedures_end_well_while_green_is_upgraded(
    fleet: Sandbox, records: Path, new_namespace: Callable[[], NamespaceName]
) -> None:
    blue, green = (connection(fleet[name]) for name in NAMES)
    shell, moved, edited = Shell.between(records, blue, green), new_namespace(), new_namespace()
    await build_estate(blue, EstateSpec(live=str(moved), tenants=1, namespaces_per_tenant=1, history=60))
    moving = ("migrate", *shell.sides, "--namespaces", moved, COMPARABLE, "--yes", "--json")
    ended(await asyncio.to_thread(shell.run, *moving))
    pair = (*shell.sides, "--select", edited.tenant)
    async with AdminClient(blue) as old, AdminClient(green) as new:
        for admin in (old, new):
            own = await admin.cluster_name()
            await admin.put(f"/tenants/{edited.tenant}", {"adminRoles": [], "allowedClusters": [own]})
            await admin.put_namespace(edited, {"replication_clusters": [own]})
        for command in (("reconcile", *pair, "--mode", "repair"), ("sync-metadata", *pair)):
            done(await asyncio.to_thread(shell.run, *command, "--yes", "--json"))
        upgrading, rounds = asyncio.create_task(asyncio.to_thread(both_upgraded, fleet)), 0
        while rounds < 2 or not upgrading.done():
            # The last round is one with all of green upgraded.
            rounds += 1
            joining = new_namespace()
            await build_estate(blue, EstateSpec(live=str(joining), tenants=1, namespaces_per_tenant=2, history=20))
            chosen = (*shell.sides, "--select", joining.tenant)
            await repeated(shell, "apply", *chosen, "--yes", "--json")
            assert (await repeated(shell, "diff", *chosen, "--json"))["equal"]
            verified = await repeated(shell, "verify", *shell.sides, "--namespace", moved, "--json")
            assert verified["verdict"] == "equal"

            await old.post(f"/namespaces/{edited.path}/maxConsumersPerTopic", 10 + rounds)
            await repeated(shell, "reconcile", *pair, "--mode", "repair", "--yes", "--json")
            assert await limit(new, edited, "max_consumers_per_topic") == 10 + rounds
            await old.post(f"/namespaces/{edited.path}/maxProducersPerTopic", 20 + rounds)
            await repeated(shell, "sync-metadata", *pair, "--yes", "--json")
            assert await limit(new, edited, "max_producers_per_topic") == 20 + rounds
        await upgrading
        assert {await new.version(broker) for broker in await new.brokers()} == {NEW}


def both_upgraded(fleet: Sandbox) -> None:
    for broker in (0, 1):
        fleet.upgrade("green", broker, NEW)


async def repeated(shell: Shell, *words: object) -> Any:
    """What a command says in the end: where a broker that restarts ends it with a sentence, it is given again."""
    async with asyncio.timeout(180):
        while (completed := await asyncio.to_thread(shell.run, *words)).state != DONE:
            assert completed.state in TRY_AGAIN, f"{completed.out}\n{completed.err}"
            await asyncio.sleep(1)
    return completed.document


async def limit(admin: AdminClient, name: NamespaceName, field: str) -> int | None:
    return (await admin.namespace(name) or {}).get(field)


async def is_flagged(cluster: ClusterConnection, name: NamespaceName) -> bool:
    async with AdminClient(cluster) as admin:
        return bool((await admin.namespace(name) or {}).get("migrated"))


async def require_untouched(source: ClusterConnection, name: NamespaceName, stopped: Said) -> None:
    """The run failed in a step up to the cut-over, with a sentence, and no client has been moved."""
    # A run that the gates refused has an error and no failed step.
    failed = stopped.document["runs"][0].get("failed", ["the gates"]) if stopped.out else ["no run yet"]
    log.warning("the run does not end by itself: %s", ", ".join(failed))
    assert stopped.state in TRY_AGAIN | {ExitState.REFUSED}, stopped.err
    assert not set(failed) & AFTER_CUT_OVER, stopped.err
    assert not await is_flagged(source, name), stopped.err


def resumed(shell: Shell, stopped: Said, words: Sequence[object]) -> Said:
    """The run goes on; the command is given again where it stopped before there was a run."""
    if not stopped.out:
        return shell.run(*words)
    return shell.run(words[0], "--resume", run_of(stopped), "--yes", "--json")


def begun_again(shell: Shell, stopped: Said, words: Sequence[object]) -> Said:
    """The copies on green are deleted, and a new run makes them."""
    aborted = shell.run("abort", run_of(stopped), "--yes")
    assert aborted.state == DONE, aborted.err
    return shell.run(*words)


def run_of(completed: Said) -> str:
    (run,) = completed.document["runs"]
    return str(run["run"])
