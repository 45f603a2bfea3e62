"""A group of applications that was led to green, for tests of what is said of it."""

from __future__ import annotations

from pulsar_fleet.clients.document import ConnectionDocument
from pulsar_fleet.clients.store import Publication


def published_on_green(
    *, at: str = "2026-11-25T12:00:00+00:00", run: str = "move_clients/1", by: str = "ann", cluster: str = "green"
) -> Publication:
    """The second version of the document of `orders`, which uses `acme/orders`."""
    return Publication(
        group="orders",
        version=2,
        document=ConnectionDocument(service_url="pulsar://green:6650"),
        cluster=cluster,
        by=by,
        at=at,
        namespaces=("acme/orders",),
        run=run,
    )
