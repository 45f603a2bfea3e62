"""Failback as a procedure: a migration back, after what it left was reopened; see docs/fail_back_namespaces.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.procedures.migration import (
    CLUSTERS,
    ending,
    is_frozen,
    preparing,
    reached,
    require_clusters,
    restoring,
    run_of,
    switching,
)
from pulsar_fleet.procedures.procedure import Checked, Ending, Procedure, Session, Step
from pulsar_fleet.settings.migration import FAILBACK_SETTINGS

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.migration.procedure import Failback


def validate_failback(conf: JsonObject) -> None:
    """Refuse invalid settings of a failback."""
    from pulsar_fleet.migration.procedure import Failback

    Failback.validate(conf)


async def require_failback(session: Session) -> None:
    """Refuse one cluster twice, others than those of the run, and namespaces that green lacks."""
    await require_clusters(session)
    failback = _failback(session)
    if not failback.begun:
        await failback.require_namespaces()


async def check_failback(session: Session) -> Checked:
    """Evaluate every interlock and every gate; a blocker stops the run. Nothing has been changed."""
    from pulsar_fleet.preflight.findings import findings_markdown

    failback = _failback(session)
    findings, names = await failback.check_failback(), listed(failback.namespaces)
    home, away = failback.clusters.blue.name, failback.clusters.green.name
    return Checked(
        headline=f"Failback of {names} from {away} to {home}.",
        changes=tuple(map(str, failback.namespaces)),
        text=f"{findings_markdown(findings)}\n{names}: {home} is reopened, and its terminated topics are removed and "
        f"recreated. From then on an application that restarts stays on {home}.",
        question=f"Move these namespaces back from {away} to {home}?",
        warnings=len(findings),
        about=f"failback of {names}",
    )


async def reopen_blue(session: Session) -> str:
    """Clear blue's migration flags and recreate its terminated topics; applications that restart now stay on blue."""
    return counted(len(await _failback(session).reopen_blue()), "namespace")


async def choose_strategies(session: Session) -> str:
    """Evaluate every gate again, now that blue is reopened, and choose the strategy of each namespace."""
    from pulsar_fleet.preflight.findings import count_line

    return count_line((await _failback(session).check_gates())[1])


def end_failback(run: Run, conf: JsonObject, failed: Mapping[str, str]) -> Ending:  # noqa: ARG001
    """The report from the ledger, and what to do with the namespaces that were given up."""
    from pulsar_fleet.migration.model import Phase, is_reversible

    phases = reached(run).phases
    given_up = sorted(name for name, phase in phases.items() if phase is Phase.ABORTED)
    text = f"Start another failback of {listed(given_up)} only: this run gave that up, and has cut over the rest."
    return ending(run, failed, instead=text if given_up and not all(map(is_reversible, phases.values())) else "")


def _failback(session: Session) -> Failback:
    from pulsar_fleet.migration.procedure import Failback

    run = run_of(session)
    assert isinstance(run, Failback)
    return run


FAILBACK = Procedure(
    name="fail_back_namespaces",
    summary="Move migrated namespaces back to the cluster that they left.",
    command="fail-back",
    clusters=CLUSTERS,
    own_settings=FAILBACK_SETTINGS,
    opening="read_request",
    checks="check_failback",
    approves="approve_failback",
    validate=validate_failback,
    require=require_failback,
    check=check_failback,
    begun=is_frozen,
    records=True,
    work=(
        Step("reopen_blue", reopen_blue, reached=is_frozen),
        Step("check_gates", choose_strategies, reached=is_frozen),
        *preparing("green", "blue"),
        *switching("green", "blue"),
    ),
    always=restoring("green"),
    lists_runs=True,
    end=end_failback,
)
