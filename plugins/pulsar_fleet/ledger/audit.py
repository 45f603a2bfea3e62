"""The audit chain: an entry for each record of the ledger, each with the digest of the one before.

A record or an entry that is altered, added or removed makes chain and records disagree. Who can write the database can
also compute the whole chain again; then evidence that was exported before does not fit any more.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from pulsar_fleet.ledger.rows import utc
from pulsar_fleet.ledger.tables import audit, changes, facts, intents, phases, runs, verdicts

BEGIN = "begin"
"""The first entry; its key has the number of records of each table that are older than the chain."""
LEDGER = "ledger"
RUN, INTENT, CHANGE, PHASE, FACT, VERDICT = "run", "intent", "change", "phase", "fact", "verdict"
_OLDER = {INTENT: intents, CHANGE: changes, PHASE: phases}
"""The tables of records that may be older than the chain."""
_APPENDED = {**_OLDER, FACT: facts}
_ZERO = "0" * 64
# Any numbers that no other application locks in the same PostgreSQL database.
MIGRATION_LOCK, CHAIN_LOCK = 5_081_250_417, 5_081_250_418


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One entry of the chain.

    :param kind: of the record: begin, ledger, a run and its state, an intent, a change, a phase, a fact, a verdict.
    :param key: the identity of the ledger, the state of a run, the scope of a verdict, the number of another record.
    :param content: SHA-256 of the record.
    :param digest: SHA-256 of this entry with the digest of the entry before.
    """

    number: int
    run_id: str
    kind: str
    key: str
    content: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """What a check of the chain found.

    :param head: the digest of the last entry, to be compared with one that was noted elsewhere.
    :param problems: a sentence for each disagreement; empty if chain and records agree.
    """

    entries: int
    head: str
    problems: tuple[str, ...]

    def text(self) -> str:
        """The outcome, with a line for each problem."""
        return "\n".join(["CHANGED:", *self.problems]) if self.problems else "UNCHANGED."


def lock(connection: sa.Connection, *locks: int) -> None:
    """Let one process after the other append to the chain, until the transaction ends.

    :param locks: taken one after the other where the database has several; by default that of the chain.
    """
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    elif connection.dialect.name == "postgresql":
        for number in locks or (CHAIN_LOCK,):
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({number})")


def begin(connection: sa.Connection) -> None:
    """Begin the chain of a ledger; its older records are not part of it."""
    newest = {kind: connection.scalar(sa.select(sa.func.max(table.c.id))) or 0 for kind, table in _OLDER.items()}
    older = {RUN: sorted(connection.scalars(sa.select(runs.c.run_id)))}
    older[VERDICT] = sorted({f"{row.run_id} {row.scope}" for row in connection.execute(sa.select(verdicts))})
    content = content_digest({**newest, **older})
    append(connection, "", [(BEGIN, json.dumps(newest, sort_keys=True), content)])


def append(connection: sa.Connection, run_id: str, records: Sequence[tuple[str, str, str]]) -> None:
    """Append an entry for each record: kind, key and digest of the content. The transaction holds `lock`."""
    previous = connection.scalar(sa.select(audit.c.digest).order_by(audit.c.number.desc()).limit(1)) or _ZERO
    rows = []
    for kind, key, content in records:
        previous = entry_digest(previous, run_id, kind, key, content)
        rows.append({"run_id": run_id, "kind": kind, "key": key, "content": content, "digest": previous})
    if rows:
        connection.execute(audit.insert(), rows)


def entry_digest(previous: str, run_id: str, kind: str, key: str, content: str) -> str:
    """The digest of an entry: nobody can change one without changing all after it."""
    return content_digest([previous, run_id, kind, key, content])


def content_digest(content: object) -> str:
    """SHA-256 of a document: equal for equal documents, whatever database has stored them."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=_plain).encode()).hexdigest()


def record_digest(record: Mapping[str, Any] | sa.RowMapping) -> str:
    """The digest of a record by its columns, without its number."""
    return content_digest({str(name): value for name, value in record.items() if name != "id"})


def run_digest(run: Mapping[str, Any] | sa.RowMapping, state: str) -> str:
    """The digest of a run's request, with one of its states."""
    request = {name: run[name] for name in ("run_id", "procedure", "conf", "started_at")}
    # The entries of earlier releases are without it.
    asked = {"requested_by": run["requested_by"]} if run["requested_by"] else {}
    return content_digest({**request, **asked, "state": state})


def entries_of(engine: sa.Engine, run_ids: Sequence[str] | None = None) -> list[AuditEntry]:
    """The entries of some runs in their order; None means all."""
    query = sa.select(audit).order_by(audit.c.number)
    if run_ids is not None:
        query = query.where(audit.c.run_id.in_(run_ids))
    with engine.connect() as connection:
        return [AuditEntry(**row) for row in connection.execute(query).mappings()]


def audited_rows(engine: sa.Engine, run_id: str, kind: str) -> list[tuple[dict[str, Any], str]]:
    """The rows of a run in a table, with the digest that the chain has of each; empty of older ones."""
    table = _APPENDED[kind]
    recorded = {entry.key: entry.content for entry in entries_of(engine, [run_id]) if entry.kind == kind}
    query = sa.select(table).where(table.c.run_id == run_id).order_by(table.c.id)
    with engine.connect() as connection:
        rows = [{str(name): value for name, value in row.items()} for row in connection.execute(query).mappings()]
    return [(row, recorded.get(str(row.pop("id")), "")) for row in rows]


def last_entry(engine: sa.Engine) -> tuple[int, str]:
    """Number and digest of the last entry."""
    query = sa.select(audit.c.number, audit.c.digest).order_by(audit.c.number.desc()).limit(1)
    with engine.connect() as connection:
        row = connection.execute(query).first()
    return (row.number, row.digest) if row else (0, _ZERO)


def identify(connection: sa.Connection) -> None:
    """Give a ledger an identity, as an entry of its chain: evidence says which ledger it is of."""
    identity = str(uuid.uuid4())
    append(connection, "", [(LEDGER, identity, content_digest(identity))])


def identity_of(engine: sa.Engine) -> str:
    """The identity of a ledger, see `identify`."""
    with engine.connect() as connection:
        return str(
            connection.scalar(sa.select(audit.c.key).where(audit.c.kind == LEDGER).order_by(audit.c.number.desc()))
            or ""
        )


def entry_at(engine: sa.Engine, number: int) -> str:
    """The digest of an entry; empty if there is none of this number."""
    with engine.connect() as connection:
        return str(connection.scalar(sa.select(audit.c.digest).where(audit.c.number == number)) or "")


def check_chain(engine: sa.Engine) -> AuditResult:
    """Compare the whole chain with itself and with every record of the ledger."""
    entries = entries_of(engine)
    problems = [*_of_entries(entries)]
    with engine.connect() as connection:
        problems += _of_appended(connection, entries)
        problems += _of_runs(connection, entries)
        problems += _of_verdicts(connection, entries)
    return AuditResult(entries=len(entries), head=entries[-1].digest if entries else _ZERO, problems=tuple(problems))


def _of_entries(entries: Sequence[AuditEntry]) -> Iterator[str]:
    if not entries or entries[0].kind != BEGIN:
        yield "The first entry of the audit chain is missing."
    previous = _ZERO
    for entry in entries:
        if entry.digest != entry_digest(previous, entry.run_id, entry.kind, entry.key, entry.content):
            yield f"Entry {entry.number} of the audit chain was altered, or an entry before it was added or removed."
        previous = entry.digest


def _of_appended(connection: sa.Connection, entries: Sequence[AuditEntry]) -> Iterator[str]:
    first = entries[0].key if entries and entries[0].kind == BEGIN else "{}"
    for kind, table in _APPENDED.items():
        recorded = {entry.key: entry.content for entry in entries if entry.kind == kind}
        older = int(json.loads(first).get(kind) or 0)
        for row in connection.execute(sa.select(table).where(table.c.id > older).order_by(table.c.id)).mappings():
            content = recorded.pop(str(row["id"]), None)
            if content is None:
                yield f"{kind} {row['id']} of run {row['run_id']} has no entry in the audit chain: it was added."
            elif content != record_digest(row):
                yield f"{kind} {row['id']} of run {row['run_id']} was altered."
        yield from (f"{kind} {key} was removed." for key in recorded)


def _of_runs(connection: sa.Connection, entries: Sequence[AuditEntry]) -> Iterator[str]:
    last = {entry.run_id: entry for entry in entries if entry.kind == RUN}
    rows = {row["run_id"]: row for row in connection.execute(sa.select(runs)).mappings()}
    for run_id, entry in last.items():
        row = rows.get(run_id)
        if row is None:
            yield f"Run {run_id} was removed."
        elif entry.key != row["state"] or entry.content != run_digest(row, entry.key):
            yield f"Run {run_id} was altered."


def _of_verdicts(connection: sa.Connection, entries: Sequence[AuditEntry]) -> Iterator[str]:
    last = {(entry.run_id, entry.key): entry.content for entry in entries if entry.kind == VERDICT}
    rows = {(row["run_id"], row["scope"]): row for row in connection.execute(sa.select(verdicts)).mappings()}
    for (run_id, scope), content in last.items():
        row = rows.get((run_id, scope))
        if row is None:
            yield f"The verdict of run {run_id} for {scope} was removed."
        elif content != record_digest(row):
            yield f"The verdict of run {run_id} for {scope} was altered."


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return utc(value).astimezone(UTC).isoformat()
    raise TypeError(f"{type(value).__name__} has no digest")
