"""Name the versions of brokers that nobody compared: what they lack is lost without an error."""

from __future__ import annotations

from pulsar_fleet.preflight.checks.versions import unmeasured_versions
from pulsar_fleet.snapshot.model import Snapshot


def unmeasured_brokers(snapshot: Snapshot) -> tuple[str, ...]:
    """What is not known of the versions of a cluster's brokers, a sentence each (pure)."""
    return unmeasured_versions(snapshot.cluster, (broker.version for broker in snapshot.brokers))
