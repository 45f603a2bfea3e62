"""Clients that connect between the last gates and the cut-over: one that a redirect would stop is refused."""

from __future__ import annotations

from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.text import with_names
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import FINDINGS
from pulsar_fleet.migration.gate_findings import not_reported, reported_findings
from pulsar_fleet.migration.model import Moves
from pulsar_fleet.migration.preflight.gates.clients import stopping_clients
from pulsar_fleet.migration.stats.clients import ConnectedClients
from pulsar_fleet.preflight.findings import refusal_text

_STATE = (
    "They connected after the gates; no topic was terminated, and no client was redirected. Then clear cut_over or use "
    "--resume."
)


def require_following_clients(run: Run, moves: Moves, namespace: str, connected: ConnectedClients) -> None:
    """Refuse the cut-over of a namespace to which a client has connected that a redirect would stop.

    Findings that the gates reported have a waiver. A run that evaluated no gates is not checked.

    :param connected: the clients of the namespace now.
    :raises PreconditionFailed: names each of these clients with its version and address.
    """
    if run.stored(FINDINGS) is None:
        return
    clients = (client for group in connected.values() for client in group)
    if late := not_reported(stopping_clients(namespace, clients), reported_findings(run)):
        raise PreconditionFailed(with_names(refusal_text(late, _STATE), moves.names))
