"""Apply a plan: each change reads the live value, writes only if the plan still applies, and reads the write back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.planning.apply.executor import PlanExecutor
from pulsar_fleet.planning.apply.journal import EarlierAttempt, Journal
from pulsar_fleet.planning.apply.outcome import PlanResult
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
    redactor: Redactor,
    allow: Collection[str] = frozenset(),
    secrets: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    again: bool = False,
) -> PlanResult:
    """Apply the plan (or a `batch` of it) on its target.

    A second call is safe at any point: it skips changes that are in place, and finishes what an interrupted attempt of
    the same run began. Namespaces run concurrently, bounded by the connection's `max_connections`; the setters of one
    namespace run in sequence. A change that fails stops only the changes that depend on it. The ledger records every
    change twice: as an intent before it is sent, and with its result before the namespace's next kind of change.

    :param allow: ids of the irreversible and destructive changes that the operator allowed; others are refused.
    :param secrets: fingerprint → secret, for changes that write a secret.
    :param again: what an earlier attempt of the run made has been deleted since, so that its records do not count.
    :param progress: called with the number of finished changes and of all changes.
    :raises PreconditionFailed: the plan is for another cluster.
    """
    own = await admin.cluster_name()
    if own != plan.target:
        raise PreconditionFailed(
            f"The plan {plan.id} is for {plan.target!r}, but connection {admin.connection.name!r} leads to {own!r}; "
            "nothing was sent.",
            cluster=own,
        )
    journal = Journal(ledger, run_id)
    async with TopicPolicyReader(admin, redactor) as reader:
        writer = Writer(admin=admin, own=own, redactor=redactor, secrets=secrets or {}, reader=reader)
        application = PlanExecutor(
            plan=plan,
            writer=writer,
            journal=journal,
            earlier=EarlierAttempt({}, frozenset()) if again else await journal.earlier(),
            allow=frozenset(allow),
            progress=progress,
        )
        return await application.run()
