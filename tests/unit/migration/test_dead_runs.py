"""What people read about a run that died."""

from __future__ import annotations

from pulsar_fleet.migration.prepare.dead_runs import LeftNamespace, LeftOverrides, Restored

DEAD = LeftNamespace(
    name="acme/orders",
    run="migrate_namespaces/manual__1",
    until="2026-11-23 03:00:00 UTC",
    is_live=False,
    flagged=True,
    overridden=("publish rate", "replication"),
)


def test_what_is_left_is_named_with_its_run_and_lease() -> None:
    overrides = LeftOverrides(cluster="blue", namespaces=(DEAD,), settings=("loadBalancerSheddingEnabled",))
    assert overrides.needs_restoration
    assert overrides.text().splitlines() == [
        "blue:",
        "  acme/orders: overridden: publish rate, replication; the run migrate_namespaces/manual__1 had a lease until "
        "2026-11-23 03:00:00 UTC; migrated",
        "  brokers: loadBalancerSheddingEnabled overridden for no live run",
    ]
    assert LeftOverrides(cluster="blue").text() == "blue: no run has left anything."
    assert not LeftOverrides(cluster="blue", settings=("a",), freezing=("b",)).needs_restoration


def test_an_override_kept_on_purpose_has_its_reason_and_its_command() -> None:
    restored = Restored(cluster="blue", restored=("a",), replicating=("acme/orders",), draining=("acme/audit",))
    first, replicating, draining = restored.text().splitlines()
    assert first == "Restored on blue: a."
    assert "To give the run up: pulsar-fleet restore blue --end-replication." in replicating
    assert draining.endswith("If consumers have read everything: pulsar-fleet restore blue.")
    copying = Restored(cluster="blue", replicating=("acme/orders", "acme/audit"), migrated=("acme/orders",)).text()
    assert "Still replicating, and migrated: acme/orders. " in copying
    assert "Still replicating: acme/audit. " in copying
    assert Restored(cluster="blue").text() == "Restored on blue: nothing was overridden any more."
