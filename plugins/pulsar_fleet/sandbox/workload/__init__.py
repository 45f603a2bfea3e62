"""Something to migrate: an estate of tenants, topics and backlog, and numbered traffic that is counted."""

from pulsar_fleet.sandbox.workload.drain import drain_subscription
from pulsar_fleet.sandbox.workload.estate import Counts, Estate, build_estate
from pulsar_fleet.sandbox.workload.journal import Counters, read_tally
from pulsar_fleet.sandbox.workload.layout import EstateSpec
from pulsar_fleet.sandbox.workload.running import Traffic
from pulsar_fleet.sandbox.workload.tally import Tally

__all__ = [
    "Counters",
    "Counts",
    "Estate",
    "EstateSpec",
    "Tally",
    "Traffic",
    "build_estate",
    "drain_subscription",
    "read_tally",
]
