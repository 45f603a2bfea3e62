"""`pulsar-fleet onboard`: the procedure of the DAG with the same steps, settings and records."""

from pulsar_fleet.cli.procedure import command_of
from pulsar_fleet.procedures.onboarding import ONBOARDING

onboard = command_of(ONBOARDING)
