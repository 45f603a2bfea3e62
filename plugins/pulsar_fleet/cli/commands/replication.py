"""`pulsar-fleet replicate`: the procedure of the DAG with the same steps, settings and records."""

from __future__ import annotations

from pulsar_fleet.cli.clusters import named_cluster
from pulsar_fleet.cli.options import Yes
from pulsar_fleet.cli.replication_run import ReplicationRun
from pulsar_fleet.cli.runs import recorded_run
from pulsar_fleet.cli.settings import with_settings
from pulsar_fleet.cli.terminal import Terminal, require_consent, usage_errors
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.replication.request import Request
from pulsar_fleet.replication.setup.apply import PROCEDURE
from pulsar_fleet.settings.replication import SETTINGS


@with_settings(
    SETTINGS, arguments={"clusters": "The clusters that replicate to each other: admin URLs or Airflow connections."}
)
def replicate(terminal: Terminal, conf: JsonObject, yes: Yes = False) -> None:
    """Replicate namespaces between clusters, add a cluster, or take one out. After Ctrl-C repeat the command."""
    if not conf["dry_run"]:
        require_consent("clusters", yes=yes)
    with usage_errors():
        request = Request.of(conf)
    groups = [
        [named_cluster(name, Side.SOURCE) for name in group]
        for group in (request.members, request.receive_only, request.leaving)
    ]
    with recorded_run(terminal, "replicate", PROCEDURE, conf) as run:
        session = ReplicationRun(terminal, run, request, yes=yes, drain_seconds=conf["drain_minutes"] * 60)
        document, state = session.execute(groups, dry_run=conf["dry_run"])
    terminal.finish(document, state)
