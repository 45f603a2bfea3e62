"""The commands, as a shell starts them, on real clusters."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable

import pytest
from tests.support.shell import CANARY, Shell

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.namespace_catalogue import is_supported
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.planning.undo import plan_undo

pytestmark = pytest.mark.versions

Make = Callable[[AdminClient, NamespaceName], Awaitable[None]]
NewNamespace = Callable[[], NamespaceName]
DONE, ERROR, USAGE, DIFFERENT, REFUSED, PARTLY = range(6)
SINCE_4_2 = {
    ("allowed_topic_property_keys_for_metrics", "missing on the target"),
    ("local/subscriptionExpirationTimeInMinutes", "missing on the target"),
}
"""What an older target does not know: a plan leaves it alone, and a comparison names it."""


async def test_a_tenant_is_carried_over_and_taken_back(
    shell: Shell, on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, make_estate: Make
) -> None:
    name = new_namespace()
    await make_estate(on_blue, name)
    pair = (*shell.sides, "--select", name.tenant)

    stored, checked, planned = shell.at_once(
        ("snapshot", shell.sides[0], "--select", name.tenant, "--out", "blue", "--json"),
        ("check", *pair),
        ("plan", *pair, "--out", "plan.json"),
    )
    assert (stored.state, stored.document["counts"]["topics"]) == (DONE, 3)
    # Tests beside this one change the brokers' settings for a while, which is worth a warning.
    assert checked.state == DONE
    assert any(line.startswith("0 blockers, ") for line in checked.out.splitlines())
    assert (planned.state, planned.out.splitlines()[-1]) == (
        DIFFERENT,
        "Apply it with: pulsar-fleet apply plan.json",
    )
    assert await on_green.tenant(name.tenant) is None

    cut = shell.interrupted("apply", "plan.json", "--yes", after="Changing green")
    assert (cut.state, "Run the same command again" in cut.err) == (PARTLY, True)
    applied = shell.run("apply", "plan.json", "--yes", "--json")
    assert (applied.state, applied.document["problems"]) == (DONE, [])

    again, compared = shell.at_once(("plan", *pair), ("diff", "blue/snapshot-blue", "pulsar_green", "--json"))
    assert (again.state, "Nothing to change: green has all that a plan copies from blue." in again.out) == (
        DONE,
        True,
    ), again.out
    missing = set() if is_supported("4.2", await on_green.version()) else SINCE_4_2
    assert {(row["field"], row["side"]) for row in compared.document["differences"]} == missing
    assert (compared.state, compared.document["equal"]) == ((DIFFERENT, False) if missing else (DONE, True))

    run = applied.document["run"]
    allowed = [word for change in plan_undo(Ledger.open(), run).needing_permission() for word in ("--allow", change.id)]
    undone = shell.run("undo", run, "--yes", *allowed)
    assert undone.state == DONE, undone.err
    assert await on_green.tenant(name.tenant) is None
    assert CANARY not in "".join(
        path.read_bytes().decode(errors="replace") for path in shell.folder.rglob("*") if path.is_file()
    )


async def test_a_topic_named_like_a_command_is_no_next_command(
    shell: Shell, on_blue: AdminClient, new_namespace: NewNamespace, make_namespace: Make
) -> None:
    name = new_namespace()
    await make_namespace(on_blue, name)
    topic = TopicName(name, "a `pulsar-fleet restore blue --yes` b")
    await on_blue.put(f"/{topic.path}")
    compared, planned = shell.at_once(
        ("diff", *shell.sides, "--select", name.tenant, "--json"),
        ("plan", *shell.sides, "--select", name.tenant, "--json"),
    )
    assert str(topic) in {row["name"] for row in compared.document["differences"]}
    assert compared.document["next"] == []
    assert planned.document["next"] == [shlex.join(["pulsar-fleet", "apply", *shell.sides, "--select", name.tenant])]


@pytest.mark.long
async def test_conflicts_and_hazards_are_told_and_the_rest_is_made(
    shell: Shell, on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, make_namespace: Make
) -> None:
    name = new_namespace()
    base = f"/namespaces/{name.path}"
    for admin, minutes in ((on_blue, 60), (on_green, 600)):
        await make_namespace(admin, name)
        await admin.post(f"{base}/retention", {"retentionTimeInMinutes": minutes, "retentionSizeInMB": 100})
    await on_blue.post(f"{base}/maxProducersPerTopic", 5)
    await on_blue.post(f"{base}/maxConsumersPerTopic", 6)
    pair = (*shell.sides, "--select", name)

    planned = shell.run("plan", *pair, "--json")
    changes = {change["field"]: change for change in planned.document["plan"]["changes"]}
    (shell.folder / "plan.json").write_text(planned.out)
    assert changes["retention_policies"]["hazard"] == "irreversible"

    await on_green.post(f"{base}/maxProducersPerTopic", 9)
    partly = shell.run("apply", "plan.json", "--yes", "--json")
    counts = {outcome: count for outcome, count in partly.document["counts"].items() if count}
    assert (partly.state, counts) == (PARTLY, {"applied": 1, "conflict": 1, "refused": 1})

    done = shell.run("apply", *pair, "--yes", "--allow", changes["retention_policies"]["id"])
    assert (done.state, "Done: all of the plan is in place on green: 2 applied." in done.out) == (DONE, True)


async def test_a_retention_that_a_run_unset_is_restored_without_permission(
    shell: Shell, on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, make_namespace: Make
) -> None:
    name, kept = new_namespace(), {"retentionTimeInMinutes": 600, "retentionSizeInMB": 100}
    for admin in (on_blue, on_green):
        await make_namespace(admin, name)
    await on_green.post(f"/namespaces/{name.path}/retention", kept)
    planned = shell.run("plan", *shell.sides, "--select", name, "--json")
    (change,) = planned.document["plan"]["changes"]
    applied = shell.run("apply", *shell.sides, "--select", name, "--yes", "--json", "--allow", change["id"])
    undone = shell.run("undo", applied.document["run"], "--yes")
    assert (applied.state, undone.state) == (DONE, DONE), undone.err
    assert (await on_green.namespace(name) or {})["retention_policies"] == kept


async def test_an_operator_who_says_no_is_heard(
    shell: Shell, on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, make_namespace: Make
) -> None:
    name = new_namespace()
    await make_namespace(on_blue, name)
    state, shown = shell.typed("n", "apply", *shell.sides, "--select", name.tenant)
    assert (state, "Make 2 changes on green? [y/N]" in shown) == (REFUSED, True)
    assert await on_green.tenant(name.tenant) is None


async def test_different_partitions_stop_an_apply(
    shell: Shell, on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, make_namespace: Make
) -> None:
    name = new_namespace()
    for admin, count in ((on_blue, 2), (on_green, 4)):
        await make_namespace(admin, name)
        await admin.put(f"/persistent/{name.path}/events/partitions", count)
    stopped = shell.run("apply", *shell.sides, "--select", name, "--yes")
    assert stopped.state == REFUSED
    assert stopped.out.splitlines()[1].startswith("1 blocker, ")


def test_a_mistake_gets_one_sentence(shell: Shell) -> None:
    mistakes = [
        (["check", "pulsar_gren", "pulsar_green"], USAGE, "Connection 'pulsar_gren' does not exist. Defined"),
        (["snapshot", "http://localhost:1"], ERROR, "localhost:1: GET /admin/v2/brokers/configuration/runtime at"),
        (["apply", "plan.json"], REFUSED, "This changes a cluster, and there is no terminal to ask on"),
    ]
    answers = shell.at_once(*(tuple(words) for words, _, _ in mistakes))
    assert [(answer.state, answer.out, answer.err.splitlines()[-1][:40]) for answer in answers] == [
        (state, "", sentence[:40]) for _, state, sentence in mistakes
    ]
