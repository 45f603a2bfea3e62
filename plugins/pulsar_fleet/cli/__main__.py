"""`python -m pulsar_fleet.cli`, the same as `pulsar-fleet`."""

from __future__ import annotations

from pulsar_fleet.cli import app

app(prog_name="pulsar-fleet")
