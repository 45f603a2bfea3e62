"""`pulsar-fleet migrate|fail-back`: the procedures of the DAGs with the same steps, settings and records."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, TypeVar

import typer

from pulsar_fleet.cli.clusters import named_cluster, reach_two, require_cluster
from pulsar_fleet.cli.interrupts import run_interruptibly
from pulsar_fleet.cli.migration_run import run_failback, run_migration
from pulsar_fleet.cli.options import AsJson, Resume, Waivers, Yes, waiver_documents
from pulsar_fleet.cli.runs import new_run_id, resumable_run
from pulsar_fleet.cli.terminal import Terminal, UsageError, require_consent, usage_errors
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Strategy
from pulsar_fleet.migration.prepare.lease import this_process
from pulsar_fleet.migration.procedure import Failback, Migration
from pulsar_fleet.migration.request import DEFAULTS
from pulsar_fleet.migration.subscriptions.transfer_plan import IndividuallyAcknowledged
from pulsar_fleet.migration.waves.steps import find_moves

Kind = TypeVar("Kind", Migration, Failback)
_ID = "admin URL or Airflow connection id."
Blue = Annotated[str | None, typer.Argument(help=f"The old cluster: {_ID}")]
Green = Annotated[str | None, typer.Argument(help=f"The new cluster: {_ID}")]
Namespaces = Annotated[
    list[str] | None,
    typer.Option(help="acme/orders; to migrate also acme, re:acme/.* or all; repeat it for more."),
]
StrategyOption = Annotated[Strategy | None, typer.Option(help="For all namespaces; default: chosen for each.")]
Quiesce = Annotated[float, typer.Option(help="Throttle producers so long before topics are terminated.")]
ProofAge = Annotated[int, typer.Option(help="Refuse the cut-over if its proof is older.")]
MaxBytes = Annotated[int | None, typer.Option(help="Limit of a proof's reading, for each broker.")]
DrainTimeout = Annotated[int, typer.Option(help="Time for copying and for draining.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Evaluate every gate and show the waves; change nothing.")]
Windows = Annotated[list[str] | None, typer.Option(help="Mon-Thu 09:00-16:00 Europe/Berlin, or two ISO times with /.")]


def migrate(
    blue: Blue = None,
    green: Green = None,
    namespaces: Namespaces = None,
    strategy: StrategyOption = None,
    wave_namespaces: Annotated[int, typer.Option(help="Most namespaces in a wave.")] = DEFAULTS["wave_namespaces"],
    wave_topics: Annotated[int, typer.Option(help="Most topics in a wave.")] = DEFAULTS["wave_topics"],
    next_waves: Annotated[
        bool, typer.Option("--next-waves/--no-next-waves", help="Go on with the next wave, with its own approval.")
    ] = DEFAULTS["next_waves"],
    change_windows: Windows = None,
    freeze_windows: Windows = None,
    waivers: Waivers = None,
    quiesce_seconds: Quiesce = DEFAULTS["quiesce_seconds"],
    individually_acknowledged: Annotated[
        IndividuallyAcknowledged, typer.Option(help="Messages beyond a mark-delete position: acknowledge on green too?")
    ] = DEFAULTS["individually_acknowledged"],
    proof_max_age_minutes: ProofAge = DEFAULTS["proof_max_age_minutes"],
    max_bytes_per_second: MaxBytes = DEFAULTS["max_bytes_per_second"],
    drain_timeout_minutes: DrainTimeout = DEFAULTS["drain_timeout_minutes"],
    repoint_timeout_minutes: Annotated[
        int, typer.Option(help="Time for connecting applications to green, with replicate_then_repoint.")
    ] = DEFAULTS["repoint_timeout_minutes"],
    delete_inactive_topics_on_blue: Annotated[
        bool, typer.Option("--delete-inactive-topics-on-blue", help="Restore the deletion of inactive topics too.")
    ] = DEFAULTS["delete_inactive_topics_on_blue"],
    remove_topics_on_blue: Annotated[
        bool, typer.Option("--remove-topics-on-blue", help="At the end remove the terminated topics on blue.")
    ] = DEFAULTS["remove_topics_on_blue"],
    dry_run: DryRun = DEFAULTS["dry_run"],
    continues: Annotated[str | None, typer.Option(help="The run whose plan of waves to continue.")] = None,
    wave: Annotated[int, typer.Option(help="Number of the wave, with --continues.")] = DEFAULTS["wave"],
    resume: Resume = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Move namespaces from blue to green. Ctrl-C stops safely; --resume continues, also after a crash."""
    settings = locals()
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        migration = _procedure(Migration, "migrate", settings)
        run_migration(terminal, migration, yes=yes)


def fail_back(
    blue: Blue = None,
    green: Green = None,
    namespaces: Namespaces = None,
    strategy: StrategyOption = None,
    allow_removal: Annotated[
        bool, typer.Option("--allow-removal", help="Remove blue's terminated topics with their stored messages.")
    ] = DEFAULTS["allow_removal"],
    waivers: Waivers = None,
    quiesce_seconds: Quiesce = DEFAULTS["quiesce_seconds"],
    proof_max_age_minutes: ProofAge = DEFAULTS["proof_max_age_minutes"],
    max_bytes_per_second: MaxBytes = DEFAULTS["max_bytes_per_second"],
    drain_timeout_minutes: DrainTimeout = DEFAULTS["drain_timeout_minutes"],
    dry_run: DryRun = DEFAULTS["dry_run"],
    resume: Resume = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Move migrated namespaces back from green to blue. Ctrl-C stops safely; --resume continues."""
    settings = locals()
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        failback = _procedure(Failback, "fail-back", settings)
        run_failback(terminal, failback, yes=yes)


def _procedure(kind: type[Kind], command: str, options: Mapping[str, Any]) -> Kind:
    """The run of the command line, which is recorded: a new one, or with --resume that of an earlier attempt."""
    if not options["dry_run"]:
        require_consent("two clusters", yes=options["yes"])
    conf = {name: _setting(name, options[name]) for name in DEFAULTS if name in options}
    if options["resume"]:
        if conf != {name: DEFAULTS[name] for name in conf} or options["blue"] or options["namespaces"]:
            raise UsageError("--resume uses the recorded clusters and settings: give no other argument but --yes.")
        return _resumed(kind, options["resume"])
    if not (options["blue"] and options["green"]):
        raise UsageError(f"Name two clusters: pulsar-fleet {command} BLUE GREEN --namespaces acme/orders.")
    conf |= {"blue": options["blue"], "green": options["green"], "namespaces": list(options["namespaces"] or ())}
    with usage_errors():
        kind.validate(conf)
    sides = run_interruptibly(_sides(conf, None))
    run = Run.open(new_run_id(command), this_process())
    run.ledger.start_run(run.id, kind.NAME, conf)
    return kind.of(conf, sides, run)


def _setting(name: str, value: Any) -> Any:
    """An option as the configuration of a run has it."""
    if value is None:
        return DEFAULTS[name]
    if name == "waivers":
        return waiver_documents(value)
    return value.value if isinstance(value, Enum) else value


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
