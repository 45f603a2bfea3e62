"""### Verify replicated namespaces on schedule

1. **Find links** — the cluster lists say what is replicated between the clusters now.
2. **Compare** — for each direction, what producers wrote to the source is compared with its copies on the target, while
   all of them publish; a namespace that was proven before is read from the end of that proof only.
3. **Check proofs** — the run fails, so that people hear of it, if something is not equal, or if the newest proof of a
   namespace is older than the setting says.

Neither cluster is changed. The page `docs/verify_replication.md` says what to do.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import airflow.providers.apache.spark.operators.spark_submit  # noqa: F401  Airflow imports it once, not in every parse.
import pendulum

from pulsar_fleet.airflow.assets import VERIFIED, announce_verified
from pulsar_fleet.airflow.procedure import procedure_dag
from pulsar_fleet.procedures.proofs import REPLICATION_PROOFS
from pulsar_fleet.settings.capacity import Capacity, Kind
from pulsar_fleet.settings.replication import VERIFY

# find_links → for each direction: freeze_bounds → compare_messages → read_verdict; check_proofs
verify_replication = procedure_dag(
    REPLICATION_PROOFS,
    schedule=VERIFY.schedule(),
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    max_active_runs=1,
    # The directions are compared some at a time, so a run may take longer than its longest task.
    dagrun_timeout=Capacity.read().run_limit(Kind.SPARK) + timedelta(days=5),
    settings=VERIFY.settings(),
    doc_md=__doc__,
    tags=["pulsar", "verification", "replication"],
    spark_jobs=Path(__file__).parents[1] / "spark_jobs",
    emits={"read_verdict": (VERIFIED, announce_verified)},
)
