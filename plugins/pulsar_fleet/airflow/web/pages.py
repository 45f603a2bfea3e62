"""Where the pages are below Airflow's own path, and what a run has stored for them."""

from __future__ import annotations

from airflow.configuration import conf

from pulsar_fleet.fleet.layout import Links
from pulsar_fleet.ledger.artefacts import Artefacts, Reference

PREFIX = "/pulsar-fleet"


def pages() -> Links:
    """The addresses of the pages."""
    base = base_path()
    return Links(base + PREFIX, base)


def base_path() -> str:
    """The path of Airflow behind a reverse proxy; empty if it has none."""
    _, _, rest = conf.get("api", "base_url", fallback="").partition("://")
    _, slash, path = rest.partition("/")
    return (slash + path).rstrip("/")


def stored_report(run_id: str) -> Reference | None:
    """The report of a run, also of one that was refused before the ledger had it; None before it has stored one."""
    return Artefacts.open().find(run_id, "report.html")
