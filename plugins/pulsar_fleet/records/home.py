"""Where records are kept unless a user says otherwise."""

from __future__ import annotations

import os
from pathlib import Path

LEDGER_VARIABLE = "PULSAR_FLEET_LEDGER"
ARTEFACTS_VARIABLE = "PULSAR_FLEET_ARTEFACTS"


def default_home() -> Path:
    """The folder under AIRFLOW_HOME (or ~/airflow, as Airflow does) that holds the ledger and the artefacts."""
    return Path(os.environ.get("AIRFLOW_HOME") or Path.home() / "airflow").expanduser() / "pulsar-fleet"


def ledger_url() -> str:
    """SQLAlchemy URL of the ledger: PULSAR_FLEET_LEDGER, else a SQLite file under AIRFLOW_HOME."""
    return os.environ.get(LEDGER_VARIABLE) or f"sqlite:///{default_home() / 'ledger.db'}"


def artefacts_url() -> str:
    """URL of the artefact store: PULSAR_FLEET_ARTEFACTS, else a folder under AIRFLOW_HOME."""
    return os.environ.get(ARTEFACTS_VARIABLE) or str(default_home() / "artefacts")
