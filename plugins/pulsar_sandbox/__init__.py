"""Real Pulsar clusters on one machine, from Maven jars, with a realistic estate and live traffic."""

from __future__ import annotations

from pulsar_sandbox.sandbox.clusters import Cluster
from pulsar_sandbox.sandbox.sandbox import Sandbox

__all__ = ["Cluster", "Sandbox"]
