"""### Carry acknowledgments on shadow topics to the owner's subscriptions

A subscription of a topic that is served read-only keeps its own cursor. This DAG carries what its consumers have
acknowledged, position and individual acknowledgments, to the owner's subscription of the same name: only what consumers
have acknowledged, and never backwards.

1. **Forward acknowledgments** — both cursors are read, and what the owner lacks is sent and read back. With *minutes*
   it continues for that time without a worker slot.
2. **Report** — positions and holes of both sides, and how many entries wait. It fails where a person must decide.

To carry them at once, run `pulsar-fleet forward-acknowledgments` as a service; this DAG may run at the same time. The
page `docs/forward_acknowledgments.md` says what to do with the report.
"""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import dag

from pulsar_fleet.airflow.alerts import run_alerts
from pulsar_fleet.airflow.form import form
from pulsar_fleet.airflow.operators.acknowledgments import ForwardAcknowledgmentsOperator
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.tasks import acknowledgments
from pulsar_fleet.settings.capacity import Capacity, Kind
from pulsar_fleet.settings.read_only import FORWARD_ACKNOWLEDGMENTS


@dag(
    schedule=FORWARD_ACKNOWLEDGMENTS.schedule(),
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    # It waits for its `minutes`, at most a day.
    dagrun_timeout=Capacity.read().run_limit(Kind.STEP) + timedelta(days=1),
    params=form(FORWARD_ACKNOWLEDGMENTS.settings()),
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "read-only"],
    **run_alerts("forward_acknowledgments"),
)
def forward_acknowledgments():
    forwarded = ForwardAcknowledgmentsOperator(task_id="forward_acknowledgments")
    acknowledgments.read_request() >> forwarded >> acknowledgments.write_report()


forward_acknowledgments()
