"""`pulsar-fleet serve-read-only`: the procedure of the DAG with the same steps, settings and records."""

from pulsar_fleet.cli.procedure import command_of
from pulsar_fleet.procedures.read_only import READ_ONLY

serve_read_only = command_of(READ_ONLY)
