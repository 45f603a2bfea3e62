"""`pulsar-fleet verify`: the comparison of `verify_clusters` in this process, without Airflow and Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from pulsar_fleet.cli.clusters import named_cluster, reach_two
from pulsar_fleet.cli.interrupts import run_interruptibly
from pulsar_fleet.cli.options import AsJson, Source, Target
from pulsar_fleet.cli.runs import recorded_run
from pulsar_fleet.cli.terminal import ExitState, Terminal, usage_errors
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.verification import steps
from pulsar_fleet.verification.messages.report import verification_text
from pulsar_fleet.verification.messages.verdict import Verdict, Verification
from pulsar_fleet.verification.request import EntryMapping, Order, require_comparable
from pulsar_fleet.verification.subscriptions import steps as subscription_steps
from pulsar_fleet.verification.subscriptions.report import subscription_text
from pulsar_fleet.verification.subscriptions.verdict import SubscriptionVerification

ENTRIES_HERE = 1_000_000
"""Entries of both clusters above which a Spark job is faster."""

_STATES = {
    Verdict.EQUAL: ExitState.DONE,
    Verdict.DIFFERENT: ExitState.DIFFERENT,
    Verdict.INCONCLUSIVE: ExitState.INCONCLUSIVE,
}


@dataclass(frozen=True, slots=True)
class _Result:
    messages: Verification
    subscriptions: SubscriptionVerification | None

    @property
    def verdict(self) -> Verdict:
        """The verdict over messages and subscriptions."""
        return Verdict.over(
            verification.verdict for verification in (self.messages, self.subscriptions) if verification
        )

    def to_json(self) -> JsonObject:
        """Both stored documents, and the verdict over both."""
        documents = {"messages": self.messages, "subscriptions": self.subscriptions}
        return {"verdict": self.verdict} | {
            name: verification.to_json() if verification else None for name, verification in documents.items()
        }

    def text(self) -> str:
        """The result as text."""
        texts = [verification_text(self.messages)]
        if self.subscriptions:
            texts.append(f"Subscriptions\n{subscription_text(self.subscriptions)}")
        return "\n\n".join(texts)


def verify(
    source: Source,
    target: Target,
    namespace: Annotated[
        list[str], typer.Option(help="A namespace to compare, such as acme/orders; repeat it for more.")
    ],
    subscriptions: Annotated[
        bool, typer.Option("--subscriptions/--no-subscriptions", help="Compare the backlogs of subscriptions too.")
    ] = True,
    mapping: Annotated[
        EntryMapping,
        typer.Option(
            help="replicated: what was replicated; copies: so, while both are written to; mesh: while each replicates "
            "to the other; whole: all."
        ),
    ] = EntryMapping.AUTO,
    order: Annotated[
        Order, typer.Option(help="The order a copy keeps: of each producer and each key, or of all messages.")
    ] = Order.PRODUCER_AND_KEY,
    examples: Annotated[int, typer.Option(min=1, max=1000, help="Different messages to list per topic.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Verify that two clusters are equal. Exits with 3 if they differ, with 6 if it is inconclusive."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        sides = named_cluster(source, Side.SOURCE), named_cluster(target, Side.TARGET)
        names = _namespaces(namespace)
        with usage_errors():
            require_comparable(mapping, subscriptions=subscriptions)
        conf: JsonObject = {
            "source": source,
            "target": target,
            "namespaces": [str(name) for name in names],
            "mapping": mapping.value,
            "order": order.value,
            "subscriptions": subscriptions,
        }
        with recorded_run(terminal, "verify", "verify", conf) as run:
            options = {"mapping": mapping, "order": order, "examples": examples}
            result = run_interruptibly(_verify(terminal, run, sides, names, options, subscriptions=subscriptions))
    terminal.say(result.text())
    terminal.finish({"run": run.id, **result.to_json()}, _STATES[result.verdict])


def _namespaces(texts: list[str]) -> list[NamespaceName]:
    with usage_errors():
        return [NamespaceName.parse(text) for text in texts]


async def _verify(
    terminal: Terminal,
    run: Run,
    sides: tuple[ClusterConnection, ClusterConnection],
    names: list[NamespaceName],
    options: Mapping[str, Any],
    *,
    subscriptions: bool,
) -> _Result:
    first, second = await reach_two(*sides)
    async with AdminClient(first.connection) as source_admin, AdminClient(second.connection) as target_admin:
        with terminal.status(f"Freezing the bounds of {first.name} and {second.name}"):
            request = await steps.freeze_bounds(source_admin, target_admin, names, **options)
        if request.entries > ENTRIES_HERE:
            terminal.note(f"{counted(request.entries, 'entry')}: the DAG verify_clusters is faster, with Spark.")
        with terminal.progress("Comparing messages", "entries") as progress:
            messages = await steps.verify_in_process(source_admin, target_admin, request, progress=progress)
        steps.record(run, messages)
        if not subscriptions:
            return _Result(messages, None)
        with terminal.progress("Comparing subscriptions", "topics") as progress:
            compared = await subscription_steps.compare_subscriptions(source_admin, target_admin, request, progress)
        subscription_steps.record(run, compared)
        return _Result(messages, compared)
