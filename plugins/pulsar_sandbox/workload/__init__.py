"""Something to migrate: an estate of tenants, topics and backlog, and numbered traffic that is counted."""

from pulsar_sandbox.workload.drain import drain_subscription
from pulsar_sandbox.workload.estate import Counts, Estate, build_estate
from pulsar_sandbox.workload.layout import EstateSpec
from pulsar_sandbox.workload.traffic.journal import Counters, read_tally
from pulsar_sandbox.workload.traffic.tally import Tally
from pulsar_sandbox.workload.traffic.traffic import Traffic

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
