"""`pulsar-fleet verify`: the proof of `verify_clusters` in this process, without Airflow and Spark."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Annotated

import typer

from pulsar_fleet.cli.clusters import named_cluster, reach_two
from pulsar_fleet.cli.commands.onboard import AsJson, Source, Target
from pulsar_fleet.cli.runs import new_run_id, recorded
from pulsar_fleet.cli.terminal import ExitState, Terminal, Usage
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.verification import steps
from pulsar_fleet.verification.messages.report import verification_text
from pulsar_fleet.verification.messages.verdict import Verdict, Verification
from pulsar_fleet.verification.request import Mapping
from pulsar_fleet.verification.subscriptions import steps as subscription_steps
from pulsar_fleet.verification.subscriptions.report import subscription_text
from pulsar_fleet.verification.subscriptions.verdict import SubscriptionVerification

ENTRIES_HERE = 1_000_000
"""Entries of both sides from which on a Spark job is done sooner."""

_STATES = {
    Verdict.EQUAL: ExitState.DONE,
    Verdict.DIFFERENT: ExitState.DIFFERENT,
    Verdict.INCONCLUSIVE: ExitState.INCONCLUSIVE,
}


@dataclass(frozen=True, slots=True)
class _Found:
    messages: Verification
    subscriptions: SubscriptionVerification | None

    @property
    def verdict(self) -> Verdict:
        """Over all that was compared."""
        return Verdict.over(each.verdict for each in (self.messages, self.subscriptions) if each)

    def to_json(self) -> JsonObject:
        """Both documents as they are stored, and the verdict over both."""
        documents = {"messages": self.messages, "subscriptions": self.subscriptions}
        return {"verdict": self.verdict} | {
            name: json.loads(each.to_bytes()) if each else None for name, each in documents.items()
        }

    def text(self) -> str:
        """For people."""
        texts = [verification_text(self.messages)]
        if self.subscriptions:
            texts.append(f"Subscriptions\n{subscription_text(self.subscriptions)}")
        return "\n\n".join(texts)


def verify(
    source: Source,
    target: Target,
    namespace: Annotated[list[str], typer.Option(help="What to compare: acme/orders; again for more.")],
    subscriptions: Annotated[
        bool, typer.Option("--subscriptions/--no-subscriptions", help="Compare what subscriptions have not read, too.")
    ] = True,
    mapping: Annotated[
        Mapping, typer.Option(help="replicated: what geo-replication brought; whole: everything.")
    ] = Mapping.AUTO,
    examples: Annotated[int, typer.Option(min=1, max=1000, help="Differing messages to name per topic.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Prove that two clusters hold the same. Exits with 3 if they do not, with 6 if it cannot be told."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        sides = named_cluster(source, Side.SOURCE), named_cluster(target, Side.TARGET)
        names = _namespaces(namespace)
        conf: JsonObject = {
            "source": source,
            "target": target,
            "namespaces": [str(name) for name in names],
            "mapping": mapping.value,
            "subscriptions": subscriptions,
        }
        with recorded(new_run_id("verify"), "verify", conf) as run:
            found = asyncio.run(
                _verify(terminal, run, sides, names, mapping=mapping, examples=examples, subscriptions=subscriptions)
            )
    terminal.say(found.text())
    terminal.finish({"run": run.id, **found.to_json()}, _STATES[found.verdict])


def _namespaces(texts: list[str]) -> list[NamespaceName]:
    try:
        return [NamespaceName.parse(text) for text in texts]
    except InvalidRequest as error:
        raise Usage(str(error)) from error


async def _verify(
    terminal: Terminal,
    run: Run,
    sides: tuple[ClusterConnection, ClusterConnection],
    names: list[NamespaceName],
    *,
    mapping: Mapping,
    examples: int,
    subscriptions: bool,
) -> _Found:
    first, second = await reach_two(*sides)
    async with AdminClient(first.connection) as here, AdminClient(second.connection) as there:
        with terminal.working(f"Freezing the bounds of {first.name} and {second.name}"):
            request = await steps.freeze_bounds(here, there, names, mapping=mapping, examples=examples)
        if request.entries > ENTRIES_HERE:
            terminal.note(f"{request.entries:,} entries: the DAG verify_clusters compares them with Spark, and sooner.")
        with terminal.counting("Comparing messages", "entries") as progress:
            messages = await steps.verify_in_process(here, there, request, progress=progress)
        steps.record(run, messages)
        if not subscriptions:
            return _Found(messages, None)
        with terminal.counting("Comparing subscriptions", "topics") as progress:
            compared = await subscription_steps.compare_subscriptions(here, there, request, progress)
        subscription_steps.record(run, compared)
        return _Found(messages, compared)
