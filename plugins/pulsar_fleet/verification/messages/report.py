"""Verdicts as a person reads them: first whether something is wrong, then numbers, then what to do (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any

from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.verification.messages.causes import Cause
from pulsar_fleet.verification.messages.differences import Difference, Kind
from pulsar_fleet.verification.messages.verdict import NamespaceVerdict, TopicVerdict, Verdict, Verification

if TYPE_CHECKING:
    import pyarrow as pa


def verification_text(found: Verification) -> str:
    """The whole result; one line per namespace, and the topics that are not equal."""
    lines = [line for each in found.namespaces for line in _namespace(each, found)]
    return "\n".join([*lines, *_conclusion(found.verdict)])


def namespace_summary(each: NamespaceVerdict, restriction: str = "") -> str:
    """One line: for the ledger, a log, a table; an equality says what it is restricted to."""
    topics = f"{len(each.topics):,} {'topic' if len(each.topics) == 1 else 'topics'}"
    if each.verdict is Verdict.EQUAL:
        return f"equal{f' {restriction}' if restriction else ''}: {each.messages:,} messages in {topics}"
    wrong = [topic for topic in each.topics if topic.verdict is each.verdict]
    if not wrong:
        return "inconclusive: nothing was compared"
    first = wrong[0]
    return f"{each.verdict}: {len(wrong):,} of {topics}, first {first.topic}: {_in_short(first)}"


def _namespace(each: NamespaceVerdict, found: Verification) -> Iterator[str]:
    if each.verdict is Verdict.EQUAL:
        only = f"; {found.restriction}" if found.restriction else ""
        compared = f"{each.messages:,} messages in {len(each.topics):,} topics on both sides"
        yield f"EQUAL      {each.namespace}: {compared}{only}"
    elif not each.topics:
        yield f"INCONCLUSIVE  {each.namespace}: nothing was compared"
    for topic in each.topics:
        if topic.verdict is not Verdict.EQUAL:
            yield f"{topic.verdict.upper()}  {topic.topic}: {_in_short(topic)}"
            yield from (f"  {_difference(one, found.source, found.target)}" for one in topic.differences)
            named = sum(one.kind is not Kind.REORDERED for one in topic.differences)
            if topic.differing > named > 0:
                yield f"  … and {topic.differing - named:,} more"
        yield from (f"  note  {topic.topic}: {note}" for note in topic.notes)


def _in_short(topic: TopicVerdict) -> str:
    if topic.verdict is Verdict.DIFFERENT and topic.differing:
        contents = f"{topic.differing:,} of {max(topic.source_messages, topic.target_messages):,} messages"
        return f"{contents}; {topic.reason}" if topic.reason else contents
    return topic.reason


def _difference(one: Difference, source: str, target: str) -> str:
    here, there = f"{source} {one.source}", f"{target} {one.target}"
    if one.kind is Kind.ALTERED:
        changes = ", ".join(f"{name} {left} → {right}" for name, left, right in one.fields)
        return f"altered: {_fields(one)}  {here} = {there}  {changes}{_why(one)}"
    if one.kind is Kind.REORDERED:
        _, left, right = one.fields[0]
        places = f"place {left} in {source}, {right} in {target}"
        return f"reordered  {here} = {there}  {places}  key {one.key!r}  producer {one.producer!r}"
    where = here if one.target is None else there if one.source is None else f"{here} = {there}"
    side = f"missing on {target}" if one.kind is Kind.MISSING else f"extra on {target}"
    copies = f"  {one.copies[0]} × in {source}, {one.copies[1]} × in {target}" if one.copies else ""
    return f"{side}  {where}  key {one.key!r}  {_time(one.publish_time)}  producer {one.producer!r}{copies}{_why(one)}"


def _why(one: Difference) -> str:
    return f"  why: {one.cause.sentence}" if one.cause and one.cause is not Cause.ALTERED else ""


def _fields(one: Difference) -> str:
    return ", ".join(name.partition(" '")[0] for name, _, _ in one.fields)


def _time(milliseconds: int) -> str:
    shown = datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
    return shown.removesuffix("+00:00") + "Z"


def _conclusion(verdict: Verdict) -> Iterator[str]:
    if verdict is Verdict.DIFFERENT:
        yield "Not explained by the bounds stated above. The gate stays shut."
    elif verdict is Verdict.INCONCLUSIVE:
        yield "Nothing is proven where it says so. The gate stays shut; remove the reason and verify again."


_TOPIC_FIELDS = ("topic", "verdict", "source_messages", "target_messages", "differing", "reordered", "reason", "engine")
_DIFFERENCE_FIELDS = ("kind", "source", "target", "key", "publish_time", "producer", "cause")


def verdict_tables(found: Verification) -> dict[str, bytes]:
    """Two Parquet files by name: `topics.parquet` and `differences.parquet`, which has no row where all is equal."""
    topics, differences = [], []
    for namespace in found.namespaces:
        for topic in namespace.topics:
            plain = topic.to_json()
            bounds = {f"{side}_bounds": topic.bounds.get(side, "") for side in Side}
            notes = {"notes": "\n".join(topic.notes), "proof": json.dumps(topic.proof)}
            topics.append(
                {"namespace": namespace.namespace, **{name: plain[name] for name in _TOPIC_FIELDS}} | bounds | notes
            )
            for each in plain["differences"]:
                fields = {"fields": json.dumps(each["fields"]), "copies": json.dumps(each["copies"])}
                differences.append(
                    {"topic": topic.topic, **{name: each[name] for name in _DIFFERENCE_FIELDS}, **fields}
                )
    return {
        "topics.parquet": _parquet(topics, _topic_columns()),
        "differences.parquet": _parquet(differences, _difference_columns()),
    }


def _topic_columns() -> pa.Schema:
    import pyarrow as pa

    text, number = pa.string(), pa.int64()
    kinds = {"source_messages": number, "target_messages": number, "differing": number, "reordered": pa.bool_()}
    names = ("namespace", *_TOPIC_FIELDS, "source_bounds", "target_bounds", "notes", "proof")
    return pa.schema([(name, kinds.get(name, text)) for name in names])


def _difference_columns() -> pa.Schema:
    import pyarrow as pa

    names = ("topic", *_DIFFERENCE_FIELDS, "fields", "copies")
    return pa.schema([(name, pa.int64() if name == "publish_time" else pa.string()) for name in names])


def _parquet(rows: list[dict[str, Any]], columns: pa.Schema) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=columns), content)
    return content.getvalue()
