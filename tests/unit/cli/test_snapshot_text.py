"""What `pulsar-fleet snapshot` says about a snapshot."""

from __future__ import annotations

from pulsar_fleet.cli.text import snapshot_text
from pulsar_fleet.cluster.admin.partial_reads import Note, Problem, unread_text
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.onboarding.results import TakenSnapshot
from pulsar_fleet.snapshot.model import TABLES


def taken(unread: str) -> TakenSnapshot:
    reference = Reference("file:///a/manifest.json", "ab", 1)
    return TakenSnapshot(
        reference=reference,
        measured=reference,
        cluster="blue",
        counts=dict.fromkeys(TABLES, 1),
        complete=not unread,
        calls=9,
        versions=("4.2.4",),
        rights="",
        unread=unread,
    )


def missing_service_url() -> str:
    """The sentence of a connection without a broker service URL: a tenant's administrator may not read the address."""
    try:
        return ClusterConnection(name="blue", admin_url="http://blue:8080").require_service_url()
    except InvalidRequest as error:
        return str(error)


def test_what_could_not_be_read_is_named_with_what_to_set() -> None:
    note = Note("topic policies of acme/orders", Problem.UNREADABLE.value, missing_service_url())
    first, *_ = snapshot_text(taken(unread_text("blue", [note])), 1).splitlines()
    assert first == (
        "INCOMPLETE: 1 of the resources of blue could not be read: topic policies of acme/orders: 'blue' has no broker "
        'service URL, which reading or redirecting messages needs: add "service_url": "pulsar://host:port" to the '
        "extras of the connection (for a cluster named by its URL: set PULSAR_FLEET_SOURCE_SERVICE_URL or …_TARGET_…). "
        "Do: follow that sentence, then read the cluster again."
    )


def test_many_resources_make_no_long_text() -> None:
    notes = [Note(f"acme/n{number}", Problem.UNREADABLE.value, "blue answered 500.") for number in range(10_000)]
    text = unread_text("blue", notes)
    assert len(text) < 1200
    assert "10,000 of the resources of blue could not be read: acme/n0: blue answered 500." in text
    assert "9,995 more are in the table 'notes' of the snapshot." in text


def test_a_complete_snapshot_says_nothing_of_it() -> None:
    assert "INCOMPLETE" not in snapshot_text(taken(""), 1)
