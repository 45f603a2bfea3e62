"""### Carry acknowledgments on shadow topics to the owner's subscriptions

A subscription of a topic that is served read-only keeps its own cursor. This DAG carries what its consumers have
acknowledged, position and individual acknowledgments, to the owner's subscription of the same name: only what consumers
have acknowledged, and never backwards.

1. **Forward acknowledgments** — both cursors are read, and what the owner lacks is sent and read back.
2. **Keep forwarding** — with *minutes* it continues for that time without a worker slot.
3. **Report** — positions and holes of both sides, and how many entries wait. It fails where a person must decide.

To carry them at once, run `pulsar-fleet forward-acknowledgments` as a service; this DAG may run at the same time. The
page `docs/forward_acknowledgments.md` says what to do with the report.
"""

from __future__ import annotations

from datetime import timedelta

import pendulum

from pulsar_fleet.airflow.procedure import procedure_dag
from pulsar_fleet.procedures.forwarding import FORWARDING
from pulsar_fleet.settings.capacity import Capacity, Kind
from pulsar_fleet.settings.read_only import FORWARD_ACKNOWLEDGMENTS

# read_request → forward_acknowledgments → keep_forwarding → write_report
forward_acknowledgments = procedure_dag(
    FORWARDING,
    schedule=FORWARD_ACKNOWLEDGMENTS.schedule(),
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    max_active_runs=1,
    # It waits for its `minutes`, at most a day.
    dagrun_timeout=Capacity.read().run_limit(Kind.STEP) + timedelta(days=1),
    settings=FORWARD_ACKNOWLEDGMENTS.settings(),
    doc_md=__doc__,
    tags=["pulsar", "read-only"],
)
