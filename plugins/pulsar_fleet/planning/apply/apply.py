"""Carry out a plan: each change reads the live value, acts only if the plan still fits, and reads back its write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.planning.apply.executor import Application
from pulsar_fleet.planning.apply.journal import Journal
from pulsar_fleet.planning.apply.outcome import Applied
from pulsar_fleet.planning.apply.writer import Writer
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader

Progress = Callable[[int, int], None]


async def apply_plan(
    plan: Plan,
    admin: AdminClient,
    ledger: Ledger,
    run_id: str,
    *,
    seal: Redactor,
    allow: Collection[str] = frozenset(),
    secrets: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Applied:
    """Carry out the plan (or a `batch` of it) on its target.

    Safe to run again at any point: what is in place is left as it is, and what an attempt of the same run began before
    it was killed is finished. Namespaces run side by side, bounded by the connection's `max_connections`; the setters
    of one run one by one. A change that cannot be made stops what depends on it and nothing else. Every change is in
    the ledger: that it is about to be made before it is sent, and what became of it before the namespace's next kind
    of change.

    :param allow: ids of the irreversible and destructive changes that the operator has allowed; others are refused.
    :param secrets: fingerprint → secret, for changes that write one.
    :param progress: called with changes done and all changes.
    :raises Refused: the plan is for another cluster.
    """
    own = await admin.cluster_name()
    if own != plan.target:
        raise PreconditionFailed(
            f"The plan {plan.id} is for {plan.target!r}, but connection {admin.connection.name!r} leads to {own!r}; "
            "nothing was sent.",
            cluster=own,
        )
    journal = Journal(ledger, run_id)
    async with TopicPolicyReader(admin, seal) as reader:
        writer = Writer(admin=admin, own=own, seal=seal, secrets=secrets or {}, reader=reader)
        application = Application(
            plan=plan,
            writer=writer,
            journal=journal,
            earlier=await journal.earlier(),
            allow=frozenset(allow),
            progress=progress,
        )
        return await application.run()
