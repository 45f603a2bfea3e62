"""`pulsar-fleet migrate|fail-back`: the procedures of the DAGs with the same steps, settings and records."""

from __future__ import annotations

from typing import TypeVar

from pulsar_fleet.cli.clusters import named_cluster, reach_two, require_cluster
from pulsar_fleet.cli.interrupts import run_interruptibly
from pulsar_fleet.cli.migration_run import run_failback, run_migration
from pulsar_fleet.cli.options import Resume, Yes
from pulsar_fleet.cli.runs import begin_run, new_run_id, resumable_run
from pulsar_fleet.cli.settings import with_settings
from pulsar_fleet.cli.terminal import Terminal, UsageError, require_consent, usage_errors
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.prepare.lease import this_process
from pulsar_fleet.migration.procedure import Failback, Migration
from pulsar_fleet.migration.request import DEFAULTS
from pulsar_fleet.migration.waves.steps import find_moves
from pulsar_fleet.settings.migration import FAILBACK_SETTINGS, SETTINGS

Kind = TypeVar("Kind", Migration, Failback)
_ID = "admin URL or Airflow connection id."
_CLUSTERS = {"blue": f"The old cluster: {_ID}", "green": f"The new cluster: {_ID}"}


@with_settings(SETTINGS, arguments=_CLUSTERS, required=False)
def migrate(terminal: Terminal, conf: JsonObject, resume: Resume = None, yes: Yes = False) -> None:
    """Move namespaces from blue to green. Ctrl-C stops safely; --resume continues, also after a crash."""
    run_migration(terminal, _procedure(terminal, Migration, "migrate", conf, resume, yes=yes), yes=yes)


@with_settings(FAILBACK_SETTINGS, arguments=_CLUSTERS, required=False)
def fail_back(terminal: Terminal, conf: JsonObject, resume: Resume = None, yes: Yes = False) -> None:
    """Move migrated namespaces back from green to blue. Ctrl-C stops safely; --resume continues."""
    run_failback(terminal, _procedure(terminal, Failback, "fail-back", conf, resume, yes=yes), yes=yes)


def _procedure(
    terminal: Terminal, kind: type[Kind], command: str, conf: JsonObject, resume: str | None, *, yes: bool
) -> Kind:
    """The run of the command line, which is recorded: a new one, or with --resume that of an earlier attempt."""
    if not conf["dry_run"]:
        require_consent("two clusters", yes=yes)
    if resume:
        if any(conf[name] != DEFAULTS.get(name) for name in conf if name != "namespaces") or conf["namespaces"]:
            raise UsageError("--resume uses the recorded clusters and settings: give no other argument but --yes.")
        return _resumed(kind, resume)
    if not (conf["blue"] and conf["green"]):
        raise UsageError(f"Name two clusters: pulsar-fleet {command} BLUE GREEN --namespaces acme/orders.")
    with usage_errors():
        kind.validate(conf)
    sides = run_interruptibly(_sides(conf, None))
    run = Run.open(new_run_id(command), this_process())
    begin_run(terminal, run, kind.NAME, conf, command=command)
    return kind.of(conf, sides, run)


def _resumed(kind: type[Kind], run_id: str) -> Kind:
    run, conf = resumable_run(run_id, kind.NAME, this_process())
    sides = run_interruptibly(_sides(conf, run))
    run.ledger.resume_run(run_id)
    return kind.of(conf, sides, run)


async def _sides(conf: JsonObject, run: Run | None) -> Sides:
    """Both clusters; with the run of an earlier attempt they must be those that it changed."""
    sides = named_cluster(conf["blue"], Side.SOURCE), named_cluster(conf["green"], Side.TARGET)
    blue, green = await reach_two(*sides)
    moves = find_moves(run) if run else None
    if run and moves:
        names = {moves.blue, moves.green}
        for cluster in (blue, green):
            if cluster.name not in names:
                require_cluster(cluster, " or ".join(sorted(names)), f"The run {run.id!r}")
    return Sides(blue.connection, green.connection)
