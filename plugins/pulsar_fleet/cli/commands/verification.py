"""`pulsar-fleet verify`: the comparison of `verify_clusters` in this process, without Airflow and Spark."""

from pulsar_fleet.cli.procedure import command_of
from pulsar_fleet.procedures.verification import VERIFICATION

verify = command_of(VERIFICATION)
