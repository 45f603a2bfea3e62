"""Runs that the pages prepare: a DAG and its settings, made from the records, and the form to start one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from pulsar_fleet.clients.store import RETURN
from pulsar_fleet.cluster.document import parse_json
from pulsar_fleet.cluster.errors import FleetError, InvalidRequest, NotFound
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.fleet.layout import Frame, Links, render
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import MIGRATIONS, Ledger
from pulsar_fleet.ledger.rows import RecordedRun
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.ledger.tables import conflicts
from pulsar_fleet.migration.artefacts import MOVEMENT
from pulsar_fleet.migration.preflight.gates.catalogue import never_waived
from pulsar_fleet.preflight.findings import Finding, blockers
from pulsar_fleet.preflight.waivers import NOT_WAIVABLE, parse_waivers

RECONCILE = "reconcile_policies"
ABORT, MOVE, MIGRATE = "abort_migration", "move_clients", "migrate_namespaces"
_MOVES = frozenset({MOVE, RETURN, MIGRATE})
FINDINGS = "findings.json"
_FAILED = "failed"
_COMMAND_LINE = "cli/"


class Errand(StrEnum):
    """What a prepared run is for."""

    SETTLE = "settle"
    """Write another value of a conflict; about `id=cluster`."""
    REPAIR = "repair"
    """Write what differs; about a run of a reconciliation, or the last one."""
    WAIVE = "waive"
    """Start a refused run again with waivers of its blockers; about that run."""
    ABORT = "abort"
    """Abort a migration before its point of no return; about its run."""
    RETURN = "return"
    """Move clients back; about the run that has moved them."""
    COMPLETE = "complete"
    """Complete the move of clients; about the run that has moved them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    """A run that only has to be started.

    :param consequence: what it does, in a sentence.
    :param first: the settings that the person looks at first; the others are as the earlier run had them.
    """

    dag_id: str
    title: str
    consequence: str
    conf: JsonObject
    first: tuple[str, ...]


def dag_of(errand: Errand, subject: str) -> str:
    """The DAG that does it.

    :param subject: of `WAIVE` the id of a run, which begins with its DAG.
    """
    if errand is Errand.WAIVE:
        return subject.partition("/")[0]
    return {Errand.ABORT: ABORT, Errand.RETURN: RETURN, Errand.COMPLETE: MIGRATE}.get(errand, RECONCILE)


def prepare(errand: Errand, subject: str, ledger: Ledger, artefacts: Artefacts, who: str) -> PreparedRun:
    """The run that does the errand, from what is recorded now.

    :param who: the person who will start it.
    :raises NotFound, InvalidRequest: nothing of that name is recorded, or nothing is to be done about it.
    """
    if errand is Errand.SETTLE:
        return _settle(ledger, *_split(subject))
    if errand is Errand.REPAIR:
        return _repair(ledger, subject)
    if errand is Errand.WAIVE:
        return _waive(Run(subject, ledger, artefacts), who)
    if errand is Errand.RETURN:
        return _return(Run(subject, ledger, artefacts))
    if errand is Errand.COMPLETE:
        return _complete(Run(subject, ledger, artefacts))
    return _abort(Run(subject, ledger, artefacts))


def waivable_blockers(run: RecordedRun, stored: Run) -> tuple[Finding, ...]:
    """The blockers that refused a run, if each can be waived; none if one cannot, or the run has taken any."""
    documents = stored.stored(FINDINGS)
    if run.state != _FAILED or "waivers" not in run.conf or not isinstance(documents, list):
        return ()
    waivers = parse_waivers(run.conf["waivers"] or ())
    found = blockers([Finding.from_json(document) for document in documents])
    rest = tuple(finding for finding in found if not any(waiver.covers(finding) for waiver in waivers))
    never = never_waived({"blue": "", "green": ""}) if run.procedure in MIGRATIONS else NOT_WAIVABLE
    return () if any(finding.id in never for finding in rest) else rest


def refused_runs(candidates: Sequence[RecordedRun], ledger: Ledger, artefacts: Artefacts) -> frozenset[str]:
    """Those of the runs that waivers would let pass; a document is read for each failed run of Airflow."""
    refused = set()
    for run in candidates:
        if run.state != _FAILED or run.run_id.startswith(_COMMAND_LINE):
            continue
        try:
            if waivable_blockers(run, Run(run.run_id, ledger, artefacts)):
                refused.add(run.run_id)
        except FleetError:
            # Waivers that nobody can read are what refused the run.
            continue
    return frozenset(refused)


def _settle(ledger: Ledger, conflict_id: str, cluster: str) -> PreparedRun:
    query = sa.select(conflicts).where(conflicts.c.id == conflict_id, conflicts.c.resolved_at.is_(None))
    with ledger.engine.connect() as connection:
        row = connection.execute(query).mappings().first()
    if row is None:
        raise NotFound(f"No conflict {conflict_id!r} waits for a decision.")
    if cluster not in row["sides"]:
        raise InvalidRequest(f"{cluster!r} does not take part in the conflict {conflict_id}.")
    recorded = ledger.run(row["run_id"])
    return PreparedRun(
        dag_id=RECONCILE,
        title=f"Settle a conflict with the value of {cluster}",
        consequence=f"Writes the value of {cluster} for {row['field']} of the {row['kind']} {row['name']} to every "
        "cluster, and repairs what else differs in the selection.",
        conf={**_clusters_of(recorded), "mode": "repair", "choose": [f"{conflict_id}={cluster}"]},
        first=("clusters", "selection", "mode", "choose"),
    )


def _repair(ledger: Ledger, run_id: str) -> PreparedRun:
    recorded = ledger.run(run_id) if run_id else None
    earlier: JsonObject = recorded.conf if recorded else {}
    kept: dict[str, Json] = {key: earlier[key] for key in ("selection", "authority") if key in earlier}
    return PreparedRun(
        dag_id=RECONCILE,
        title="Repair what differs",
        consequence="Writes only the fields that differ, and reads them back. What can lose messages is not written "
        "without its id under allowed changes.",
        conf={**_clusters_of(recorded), **kept, "mode": "repair"},
        first=("clusters", "selection", "authority", "mode"),
    )


def _clusters_of(recorded: RecordedRun | None) -> dict[str, Json]:
    """The connections of the run; a run of the command line names addresses, which Airflow does not have."""
    if recorded is None or recorded.run_id.startswith(_COMMAND_LINE):
        return {}
    clusters = recorded.conf.get("clusters")
    return {"clusters": clusters} if clusters else {}


def _waive(run: Run, who: str) -> PreparedRun:
    recorded = _recorded(run)
    rest = waivable_blockers(recorded, run)
    if not rest:
        raise InvalidRequest(f"No blocker of {run.id!r} can be waived.")
    added = [{"id": finding.id, "resource": finding.resource, "who": who, "why": ""} for finding in rest]
    return PreparedRun(
        dag_id=recorded.procedure,
        title=f"Start {recorded.procedure} again with waivers",
        consequence="Each waiver accepts the risk of a blocker in your name: write under 'why' why that is right. "
        "Remove those that you do not accept. The report of the refused run says what each blocker leads to.",
        conf={**recorded.conf, "waivers": [*(recorded.conf["waivers"] or ()), *added]},
        first=("waivers",),
    )


def _abort(run: Run) -> PreparedRun:
    if _recorded(run).procedure not in MIGRATIONS:
        raise InvalidRequest(f"{run.id!r} is not a migration.")
    return PreparedRun(
        dag_id=ABORT,
        title="Abort a migration",
        consequence="Undoes what the run changed: flags, replication, overrides, and what it created on the new "
        "cluster and nobody uses. It is refused once a topic is terminated. Mark the run as failed first.",
        conf={"run": run.id},
        first=("run", "blue", "green"),
    )


def may_return(run_id: str) -> bool:
    """Whether Airflow can take back a move: one of the command line names addresses, which Airflow does not have."""
    return run_id.partition("/")[0] in _MOVES


def _return(run: Run) -> PreparedRun:
    _recorded(run)
    if not run.stored(MOVEMENT) or not may_return(run.id):
        raise InvalidRequest(f"{run.id!r} has moved no clients, or is a run of the command line: return-clients there.")
    return PreparedRun(
        dag_id=RETURN,
        title="Move the clients back",
        consequence="Carries the positions of their subscriptions back, and leads the clients to the cluster where "
        "they were before, at once. Nobody is asked again.",
        conf={"run": run.id},
        first=("run", "why"),
    )


def may_complete(run_id: str) -> bool:
    """Whether Airflow can complete a move: it is no return, and no run of the command line."""
    return run_id.partition("/")[0] in (MOVE, MIGRATE)


def _complete(run: Run) -> PreparedRun:
    recorded = _recorded(run)
    moved = run.stored(MOVEMENT)
    if not moved or not may_complete(run.id):
        raise InvalidRequest(f"{run.id!r} is no move of Airflow: complete it with pulsar-fleet migrate.")
    conf = recorded.conf
    blue, green = conf.get("origin") or conf["blue"], conf.get("target") or conf["green"]
    return PreparedRun(
        dag_id=MIGRATE,
        title="Complete the move",
        consequence="Ends that the clients can return: the cluster that they have left refuses producers of these "
        "namespaces, and replication between both ends. A person is asked before, and until the first topic is "
        "terminated it can be aborted.",
        conf={"blue": blue, "green": green, "namespaces": list(moved["namespaces"])},
        first=("blue", "green", "namespaces"),
    )


def _recorded(run: Run) -> RecordedRun:
    recorded = run.ledger.run(run.id)
    if recorded is None:
        raise NotFound(f"The ledger has no run {run.id!r}.")
    return recorded


def _split(subject: str) -> tuple[str, str]:
    conflict_id, equals, cluster = subject.partition("=")
    if not equals:
        raise InvalidRequest(f"{subject!r} names no cluster: write ID=CLUSTER.")
    return conflict_id, cluster


PREFIX = "conf."
"""Of the names of the form's fields that are settings."""


class Control(StrEnum):
    """How a setting is entered."""

    CHOICE = "choice"
    LINES = "lines"
    """Several texts, one a line."""
    JSON = "json"
    NUMBER = "number"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A setting of a DAG's form.

    :param schema: its JSON schema, as Airflow has it.
    :param default: that of the DAG.
    """

    name: str
    title: str
    description: str
    schema: Mapping[str, Any]
    default: Json = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The types that its value may have."""
        types = self.schema.get("type") or "string"
        return (types,) if isinstance(types, str) else tuple(types)

    @property
    def control(self) -> Control:
        """How it is entered."""
        if self.schema.get("enum") or "boolean" in self.kinds:
            return Control.CHOICE
        if "array" in self.kinds:
            items = self.schema.get("items") or {}
            return Control.LINES if items.get("type") == "string" else Control.JSON
        if "object" in self.kinds:
            return Control.JSON
        return Control.NUMBER if {"integer", "number"} & {*self.kinds} else Control.TEXT

    @property
    def options(self) -> tuple[str, ...]:
        """The values of a choice, as texts."""
        return tuple(_plain(value) for value in self.schema.get("enum") or (True, False))

    def text(self, value: Json) -> str:
        """A value as the form shows it."""
        if value is None:
            return ""
        if self.control is Control.LINES and isinstance(value, list):
            return "\n".join(map(str, value))
        if self.control is Control.JSON:
            return json.dumps(value, indent=2, ensure_ascii=False)
        return _plain(value)

    def value(self, text: str) -> Json:
        """What a person entered; `InvalidRequest` for what JSON does not allow, where it is needed."""
        entered = text.strip()
        if self.control is Control.LINES:
            lines = [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]
            # The name of a topic may begin or end with a space.
            return [line if "://" in line else line.strip() for line in lines]
        if self.control is Control.TEXT:
            return entered or (None if "null" in self.kinds else "")
        if self.control is Control.CHOICE and "boolean" not in self.kinds:
            return entered
        return parse_json(entered, self.title) if entered else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartForm:
    """What the form shows.

    :param shown: the settings that a person looks at first, with their texts; `others` are folded.
    :param is_paused: whether the runs of the DAG wait until it is unpaused.
    :param may_unpause: whether the visitor may do that.
    :param has_schedule: whether unpausing also begins its schedule.
    :param error: why the form was not accepted; empty at first.
    """

    dag_id: str
    title: str
    consequence: str
    shown: Sequence[tuple[Field, str]]
    others: Sequence[tuple[Field, str]] = ()
    is_paused: bool = False
    may_unpause: bool = False
    has_schedule: bool = False
    error: str = ""


def start_page(form: StartForm, links: Links, now: datetime) -> str:
    """The page as HTML."""
    frame = Frame(here=form.title, links=links, read_at=now, query={}, is_form=True)
    return render("start.html", frame, "Nothing has been started.", form=form, prefix=PREFIX, rows=_rows)


def started_page(run_id: str, links: Links, now: datetime) -> str:
    """What follows when the run was started."""
    frame = Frame(here="Started", links=links, read_at=now, query={}, is_form=True)
    return render("started.html", frame, "", run_id=run_id, run=links.run(run_id))


def _rows(text: str) -> int:
    """The height of a text field, in lines."""
    return min(16, max(2, text.count("\n") + 2))


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)
