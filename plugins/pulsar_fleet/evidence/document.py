"""The evidence of a run as a document: records in their order, each with the digest of all before it (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Self

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.ledger.audit import content_digest

SCHEMA_VERSION = 2
_WITHOUT_LEDGER = 1
"""The shape of releases that did not name the ledger."""
_ZERO = "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One fact of a run.

    :param kind: `run`, `approval`, `change`, `intent`, `phase`, `digests`, `verdict`, `report` or `artefact`.
    :param content: what the records have of it; secrets are fingerprints there.
    :param audit: the digest that the ledger's audit chain has of it; empty for what is not in the ledger.
    :param digest: of this record and all before it; empty before `chain`.
    """

    kind: str
    content: Json
    audit: str = ""
    digest: str = ""

    def after(self, previous: str) -> str:
        """The digest that this record has after another one."""
        return content_digest([previous, self.kind, self.content, self.audit])


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence of one run.

    :param made_at: ISO 8601, UTC.
    :param audit_number: of the last entry of the ledger's audit chain when this was made.
    :param audit_head: the digest of that entry.
    :param ledger: its identity; empty in evidence of earlier releases.
    """

    run_id: str
    made_at: str
    audit_number: int
    audit_head: str
    records: tuple[Record, ...]
    ledger: str = ""

    @classmethod
    def chain(
        cls, run_id: str, made_at: str, audit: tuple[int, str], records: Iterable[Record], *, ledger: str = ""
    ) -> Self:
        """The evidence with a digest in each record."""
        chained, previous = [], _first(run_id, made_at, *audit, ledger)
        for record in records:
            previous = record.after(previous)
            chained.append(replace(record, digest=previous))
        number, head = audit
        return cls(
            run_id=run_id, made_at=made_at, audit_number=number, audit_head=head, records=tuple(chained), ledger=ledger
        )

    @property
    def head(self) -> str:
        """The digest of everything."""
        return self.records[-1].digest if self.records else _first(*self._begin)

    @property
    def _begin(self) -> tuple[str, str, int, str, str]:
        return self.run_id, self.made_at, self.audit_number, self.audit_head, self.ledger

    def of(self, kind: str) -> list[Json]:
        """The contents of the records of one kind."""
        return [record.content for record in self.records if record.kind == kind]

    def problems(self) -> Iterator[str]:
        """A sentence for each record that does not fit the digests."""
        previous = _first(*self._begin)
        for number, record in enumerate(self.records, 1):
            if record.digest != record.after(previous):
                yield (
                    f"Record {number} ({record.kind}) was altered, or the head of the file was, or a record before it "
                    "was added or removed."
                )
            previous = record.digest

    def to_bytes(self) -> bytes:
        """As a JSON file; equal evidence has equal bytes."""
        document = {
            **(
                {"schema_version": SCHEMA_VERSION, "ledger": self.ledger}
                if self.ledger
                else {"schema_version": _WITHOUT_LEDGER}
            ),
            "run_id": self.run_id,
            "made_at": self.made_at,
            "audit_number": self.audit_number,
            "audit_head": self.audit_head,
            "head": self.head,
            "records": [
                {"kind": record.kind, "content": record.content, "audit": record.audit, "digest": record.digest}
                for record in self.records
            ],
        }
        return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read what `to_bytes` wrote.

        :raises InvalidRequest: it is not evidence, or of a release with another shape.
        """
        try:
            document = json.loads(content)
            version = document["schema_version"]
            records = tuple(Record(**record) for record in document["records"])
            named = (
                "run_id",
                "made_at",
                "audit_number",
                "audit_head",
                *(["ledger"] if version != _WITHOUT_LEDGER else []),
            )
            parts = {name: document[name] for name in named}
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidRequest(f"This is not an evidence file ({type(error).__name__}: {error}).") from error
        if version not in (_WITHOUT_LEDGER, SCHEMA_VERSION):
            raise InvalidRequest(f"The evidence has the shape {version}, this release reads {SCHEMA_VERSION}.")
        return cls(**parts, records=records)


def _first(run_id: str, made_at: str, audit_number: int, audit_head: str, ledger: str) -> str:
    return content_digest([_ZERO, run_id, made_at, audit_number, audit_head, *([ledger] if ledger else [])])
