"""Whether green keeps what it gets for as long as copying and draining may take (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pulsar_fleet.migration.preflight.gates.catalogue import Owner, blocks
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.migration.stats.facts import NamespaceFacts
from pulsar_fleet.preflight.checks.policies import messages_outlive_the_lag
from pulsar_fleet.preflight.context import number
from pulsar_fleet.preflight.findings import Finding, Severity

_COPY_NOT_KEPT = blocks(
    "copy-not-kept",
    Owner.TENANT,
    "Until the subscriptions are placed nothing on green holds what was copied: closed ledgers are deleted.",
    never_waived="the first messages of the copy are gone before a subscription can get them.",
)


def green_keeps_messages_for_the_drain(view: View) -> Iterator[Finding]:
    """What waits on green while consumers still read on blue must not expire, be evicted or be deleted meanwhile.

    By the rules that hold for any lag between two clusters, on the documents as green will have them.
    """
    pair, names = view.pair(), {str(facts.namespace) for facts in view.moving}
    held = pair.wanted.namespaces if view.expected.prepares_green else view.green.snapshot.namespaces
    here = replace(view.green.snapshot, namespaces=tuple(one for one in held if one.name in names))
    probes = replace(pair.probes, lag_seconds=view.expected.drain_minutes * 60)
    for finding in messages_outlive_the_lag(replace(pair, source=here, probes=probes)):
        yield replace(finding, severity=Severity.BLOCKER, owner=Owner.TENANT.value)


def green_keeps_the_copy(view: View) -> Iterator[Finding]:
    """Without retention a ledger that is full goes at once where no subscription holds it; one that is open stays."""
    settings = view.green.snapshot
    entries = number(settings, "managedLedgerMaxEntriesPerLedger")
    megabytes = number(settings, "managedLedgerMaxSizePerLedgerMbytes")
    minutes = number(settings, "managedLedgerMaxLedgerRolloverTimeMinutes")
    for facts in view.moving:
        if not view.replicates(facts.namespace) or _retained(view, facts):
            continue
        backlog = max((sub.backlog for one in facts.partitions for sub in one.subscriptions.values()), default=0)
        stored = max((one.stored_bytes for one in facts.partitions), default=0)
        full = (entries and backlog >= entries) or (megabytes and stored >= megabytes << 20)
        if full or (minutes and view.expected.drain_minutes >= minutes):
            yield _COPY_NOT_KEPT.found(
                str(facts.namespace),
                f"no retention on {view.green.name}; up to {backlog:,} entries and {stored >> 20:,} MiB in a "
                f"partition, a ledger there is full at {entries:,} entries, {megabytes:,} MiB or after {minutes:,} min",
                f"give the namespace retention for {view.expected.drain_minutes} min or more until it is switched.",
                call=f"{view.green.name}: POST /admin/v2/namespaces/{facts.namespace.path}/retention "
                f'{{"retentionTimeInMinutes": {view.expected.drain_minutes}, "retentionSizeInMB": -1}}',
            )


def _retained(view: View, facts: NamespaceFacts) -> bool:
    document = facts.blue if view.expected.prepares_green else facts.green
    own = (document or {}).get("retention_policies")
    if own:
        return bool(own.get("retentionTimeInMinutes") and own.get("retentionSizeInMB"))
    keys = ("defaultRetentionTimeInMinutes", "defaultRetentionSizeInMB")
    return all(number(view.green.snapshot, key) > 0 for key in keys)
