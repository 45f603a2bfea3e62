"""The checks of every procedure on two clusters, with the severity that they have for a migration (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.migration.preflight.copied_policies import copied_in
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.planning.translation import has_one_store
from pulsar_fleet.preflight.checks.clusters import SHARED_STORE
from pulsar_fleet.preflight.compatibility import check_compatibility
from pulsar_fleet.preflight.findings import Finding, Severity
from pulsar_fleet.preflight.target_limits import DELAY, ENCRYPTION, SIZE

RAISED_TO_BLOCKERS: Mapping[str, str] = {
    "partitions-grow": "redirected producers would lose the order of keys, and some partitions would never move",
    "subscription-not-addressable": "its cursor cannot be transferred, and the cut-over would fail half-way",
    "max-message-size-smaller": "{green} refuses larger messages of redirected producers, and a copy stops at the "
    "first",
    "topic-name-refused": "no call creates it on {green}, so its clients would be redirected to nothing",
    "security-differs": "clients are refused on {green}, or {green} accepts every client",
}
"""Warnings of these checks that are blockers for a migration, and why."""

REPORTED_ELSEWHERE = frozenset(
    {"not-visible", "resource-not-readable", "dynamic-settings-differ", "topic-terminated", "shadow-topic"}
    | {"functions-not-copied", "scalable-topics-not-copied"}
)
"""Gates of a migration report them; a run overrides dynamic settings of blue itself."""

OF_COPIES = frozenset(id_ for limit in (ENCRYPTION, DELAY, SIZE) for id_ in limit.ids)
"""Limits for messages, which gates report for the namespaces whose messages are copied."""


LEFT_GREEN = frozenset({"namespace-migrated", "topic-terminated-on-target"})
"""What an earlier move away from green has left there."""
_FAIL_BACK = (
    "leave the flag, keep the topics: the namespace was moved away from {green} before. Move it with "
    "fail_back_namespaces instead, which verifies and recreates what was left there: {form}. On a terminal: "
    "pulsar-fleet fail-back {to} {away} --namespaces {name} --dry-run."
)


def clusters_are_compatible(view: View) -> Iterator[Finding]:
    """Versions, partition counts, schemas, limits, security, policies: the same rules as for onboarding."""
    blue, green, copied = view.blue.snapshot, view.green.snapshot, {str(facts.namespace) for facts in copied_in(view)}
    for finding in check_compatibility(blue, green, view.pair().probes):
        if finding.id in RAISED_TO_BLOCKERS:
            yield replace(finding, severity=Severity.BLOCKER)
        elif finding.id in LEFT_GREEN and (name := _returning(view, finding)):
            yield replace(finding, remedy=_failback_remedy(view, name))
        elif finding.id == SHARED_STORE and _only_redirects(view) and has_one_store(blue, green):
            continue  # Nothing is copied, no list is changed; `green-not-in-list` demands that green may serve.
        elif finding.id not in REPORTED_ELSEWHERE and not (finding.id in OF_COPIES and _inside(finding) in copied):
            yield finding


def _only_redirects(view: View) -> bool:
    return not any(view.replicates(facts.namespace) for facts in view.moving)


def _inside(finding: Finding) -> str:
    """The namespace of a finding about one, or about a topic of it."""
    name = finding.resource
    return str(TopicName.parse(name).namespace) if "://" in name else name


def _failback_remedy(view: View, name: str) -> str:
    away, to = view.connections
    form = json.dumps({"blue": to, "green": away, "namespaces": [name]})
    return _FAIL_BACK.format(green=view.green.name, form=form, to=to, away=away, name=name)


def _returning(view: View, finding: Finding) -> str:
    """The namespace of a finding, if it was moved from green to blue before: green has its flag and ended topics."""
    for facts in view.moving:
        name = str(facts.namespace)
        left = (facts.green or {}).get("migrated") and view.green.has_terminated(facts.namespace)
        if (finding.resource == name or f"://{name}/" in finding.resource) and left:
            return "" if (facts.blue or {}).get("migrated") else name
    return ""
