"""Store the plan of all clusters with its findings and its calls, and read it again."""

from __future__ import annotations

from pulsar_fleet.cluster.text import counted
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.render import plan_markdown
from pulsar_fleet.preflight.context import call_text
from pulsar_fleet.preflight.findings import Finding, blockers, count_line
from pulsar_fleet.replication.setup.plan import ReplicationPlan, StoredReplicationPlan


def store_plan(planned: ReplicationPlan, findings: tuple[Finding, ...], run: Run) -> StoredReplicationPlan:
    """Store the plan, its findings, and a text with every call."""
    blocking = len(blockers(findings))
    topology = planned.topology
    calls = sum(plan.calls for plan in planned.plans)
    headline = (
        f"{counted(len(planned.namespaces), 'namespace')}, {_topology_text(planned)}: "
        f"{counted(planned.changes, 'change')}, {counted(calls, 'call')}; {count_line(findings)}."
    )
    calls_text = "\n".join(["**The calls**, in their order:", "", "```", *call_lines(planned), "```"])
    text = "\n\n".join((headline, *(plan_markdown(plan) for plan in planned.plans), calls_text)).encode()
    return StoredReplicationPlan(
        plan=run.artefacts.write_json(run.id, "plan.json", planned.to_json()),
        findings=run.artefacts.write_json(run.id, "findings.json", [finding.to_json() for finding in findings]),
        text=run.artefacts.write(run.id, "plan.md", text),
        id=run.id.rpartition("/")[2],
        headline=headline,
        clusters=topology.clusters,
        namespaces=len(planned.namespaces),
        changes=planned.changes,
        calls=calls,
        blockers=blocking,
        warnings=len(findings) - blocking,
        ends=any(not plans.ends.empty for plans in planned.clusters.values()),
    )


def _topology_text(planned: ReplicationPlan) -> str:
    topology = planned.topology
    parts = [
        f"members {', '.join(topology.members)}",
        f"receive-only {', '.join(topology.receive_only)}" if topology.receive_only else "",
        f"leaving {', '.join(topology.leaving)}" if topology.leaving else "",
    ]
    return "; ".join(part for part in parts if part)


def read_plan(artefacts: Artefacts, planned: StoredReplicationPlan) -> ReplicationPlan:
    """The stored plan of all clusters."""
    return ReplicationPlan.from_json(artefacts.read_json(planned.plan))


def read_findings(artefacts: Artefacts, planned: StoredReplicationPlan) -> tuple[Finding, ...]:
    """The stored findings."""
    return tuple(map(Finding.from_json, artefacts.read_json(planned.findings)))


def call_lines(planned: ReplicationPlan) -> list[str]:
    """Every writing call in its order; secrets are shown as fingerprints."""
    changes = ((plan.target, change) for plan in planned.plans for change in plan.changes)
    return [call_text(target, call) for target, change in changes for call in change.calls]
