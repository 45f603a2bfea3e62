"""Whether green keeps messages for as long as replication and drain may take (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pulsar_fleet.migration.facts import NamespaceFacts
from pulsar_fleet.migration.preflight.copied_policies import on_every_side
from pulsar_fleet.migration.preflight.gates.catalogue import Owner, blocks, warns
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.preflight.checks.policies import messages_outlive_the_lag
from pulsar_fleet.preflight.context import number
from pulsar_fleet.preflight.findings import Finding, Severity

_COPY_NOT_KEPT = blocks(
    "copy-not-kept",
    Owner.TENANT,
    "Until the cut-over sets the cursors, {green} deletes full ledgers of the copy.",
    never_waived="the first messages of the copy are deleted before a subscription can get them.",
)


_RETAINED = warns(
    "retained-messages-stay",
    Owner.APPLICATION,
    "A redirect moves no stored message: who reads from the beginning on {green} does not get them.",
)

_UNCOPIED = warns(
    "retained-messages-not-copied",
    Owner.APPLICATION,
    "Who reads from the beginning on {green} does not get them: its copy begins later.",
)


def retained_messages_are_reported(view: View) -> Iterator[Finding]:
    """Messages that every subscription has read, and that retention keeps on blue."""
    for facts in view.prepared:
        if facts.retained and not view.replicates(facts.namespace):
            yield _RETAINED.finding(
                str(facts.namespace),
                f"{facts.retained} retains messages on {view.blue.name}",
                "move the namespace with replicate_then_switch, or nothing if nobody reads them again.",
            )
        elif facts.retained and facts.uncopied:
            entries, first = sum(one.entries for one in facts.uncopied.values()), min(map(str, facts.uncopied))
            yield _UNCOPIED.finding(
                str(facts.namespace),
                f"{entries:,} entries of {len(facts.uncopied)} partitions, first {first}, which {view.blue.name} "
                f"replicates to {view.green.name} already",
                "let who needs them read them on {blue} before, or nothing if nobody reads them again.",
            )


def green_keeps_messages_for_the_drain(view: View) -> Iterator[Finding]:
    """Messages on green must not expire, be evicted or be deleted while consumers still read on blue.

    It applies the rules for a lag between two clusters to the policies that green will have.
    """
    pair, names = view.pair(), {str(facts.namespace) for facts in view.prepared}
    states = pair.translated.namespaces if view.expected.prepares_green else view.green.snapshot.namespaces
    snapshot = replace(view.green.snapshot, namespaces=tuple(state for state in states if state.name in names))
    probes = replace(pair.probes, lag_seconds=view.expected.drain_minutes * 60)
    for finding in messages_outlive_the_lag(replace(pair, source=snapshot, probes=probes)):
        call = on_every_side(view, finding.call.removeprefix(f"{view.green.name}: "))
        remedy = finding.remedy.replace(f"on {view.green.name}", _where(view))
        yield replace(finding, severity=Severity.BLOCKER, owner=Owner.TENANT.value, remedy=remedy, call=call)


def green_keeps_the_copy(view: View) -> Iterator[Finding]:
    """Without retention green deletes a full ledger at once when no subscription needs it; an open ledger stays."""
    settings = view.green.snapshot
    entries = number(settings, "managedLedgerMaxEntriesPerLedger")
    megabytes = number(settings, "managedLedgerMaxSizePerLedgerMbytes")
    minutes = number(settings, "managedLedgerMaxLedgerRolloverTimeMinutes")
    for facts in view.prepared:
        if not view.replicates(facts.namespace) or _retained(view, facts):
            continue
        backlog = max(
            (cursor.backlog for part in facts.partitions for cursor in part.subscriptions.values()), default=0
        )
        stored = max((part.stored_bytes for part in facts.partitions), default=0)
        full = (entries and backlog >= entries) or (megabytes and stored >= megabytes << 20)
        if full or (minutes and view.expected.drain_minutes >= minutes):
            yield _COPY_NOT_KEPT.finding(
                str(facts.namespace),
                f"no retention on {view.green.name}; up to {backlog:,} entries and {stored >> 20:,} MiB in a "
                f"partition, a ledger there is full at {entries:,} entries, {megabytes:,} MiB or after {minutes:,} min",
                f"set a retention of {view.expected.drain_minutes} min or more for the namespace {_where(view)} "
                "until it "
                "is cut over; it has none, so nothing is kept for a shorter time.",
                call=on_every_side(
                    view,
                    f"POST /admin/v2/namespaces/{facts.namespace.path}/retention "
                    f'{{"retentionTimeInMinutes": {view.expected.drain_minutes}, "retentionSizeInMB": -1}}',
                ),
            )


def _where(view: View) -> str:
    return f"on {view.blue.name}" + ("" if view.expected.prepares_green else f" and on {view.green.name}")


def _retained(view: View, facts: NamespaceFacts) -> bool:
    document = facts.blue if view.expected.prepares_green else facts.green
    own = (document or {}).get("retention_policies")
    if own:
        return bool(own.get("retentionTimeInMinutes") and own.get("retentionSizeInMB"))
    keys = ("defaultRetentionTimeInMinutes", "defaultRetentionSizeInMB")
    return all(number(view.green.snapshot, key) > 0 for key in keys)
