"""`pulsar-fleet replicate`: the procedure of the DAG with the same steps, settings and records."""

from pulsar_fleet.cli.procedure import command_of
from pulsar_fleet.procedures.replication import REPLICATION

replicate = command_of(REPLICATION)
