"""The whole onboarding on the terminal: approved, killed and resumed, and undone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.support.shell import Shell

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.ledger.ledger import Ledger

Make = Callable[[AdminClient, NamespaceName], Awaitable[None]]
NewNamespace = Callable[[], NamespaceName]
DONE, ERROR, USAGE, DIFFERENT, REFUSED, PARTLY = range(6)
INTERRUPTED = 130
STEPS = ("apply_plan", "verify_equal")


@pytest.mark.long
async def test_a_tenant_is_onboarded_after_a_kill_and_ctrl_c(
    shell: Shell, on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, make_estate: Make
) -> None:
    name = new_namespace()
    await make_estate(on_blue, name)
    words = ("onboard", *shell.sides, "--select", name.tenant)
    dry, unapproved = shell.at_once((*words, "--dry-run"), words)
    assert (dry.state, unapproved.state, await on_green.tenant(name.tenant)) == (DONE, REFUSED, None)
    assert "Dry run: nothing has been changed." in dry.out
    state, rejected = shell.typed("n", *words)
    assert (state, "The plan was not approved. Nothing has been changed." in rejected) == (REFUSED, True)

    shell.killed(*words, "--yes", after="apply_plan")
    (run,) = [record.run_id for record in Ledger.open().newest_runs(9) if record.state == "running"]
    cut = shell.interrupted("onboard", "--resume", run, "--yes", after="apply_plan")
    assert cut.state in (PARTLY, INTERRUPTED), cut.err
    assert f"apply_plan: interrupted.\nContinue with: pulsar-fleet onboard --resume {run}" in cut.err
    resumed = shell.run("onboard", "--resume", run, "--yes", "--json")
    assert (resumed.state, resumed.document["failed"]) == (DONE, []), resumed.err
    assert [step["step"] for step in resumed.document["steps"]] == list(STEPS)
    assert resumed.document["report"].startswith("# Equal: green has all that a plan copies from blue")

    again, other = shell.at_once(
        ("onboard", "--resume", run, "--yes"), ("diff", *shell.sides, "--select", name.tenant, "--json")
    )
    assert (again.state, "has ended (succeeded)" in again.err) == (DONE, True)
    assert (other.state, other.document["equal"]) == (DONE, True)
    shell.undo(f"undo {run}")
    assert await on_green.tenant(name.tenant) is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Name the source"),
        (("--resume", "cli/onboard-none", "--yes"), "The ledger has no run"),
        (("--resume", "cli/onboard-none", "--select", "acme", "--yes"), "give no other argument but --yes"),
    ],
)
def test_an_onboarding_that_is_not_valid_is_refused(shell: Shell, words: tuple[str, ...], said: str) -> None:
    refused = shell.run("onboard", *words, "--yes")
    assert (refused.state in (ERROR, USAGE), said in refused.err) == (True, True), refused.err
