"""Verdicts as text: first whether something differs, then the numbers, then what to do (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any

from pulsar_fleet.cluster.text import counted
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.verification.messages.differences import Cause, Difference, Kind
from pulsar_fleet.verification.messages.verdict import NamespaceVerdict, TopicVerdict, Verdict, Verification

if TYPE_CHECKING:
    import pyarrow as pa

_YEAR_10000_MS = 253_402_300_800_000


def verification_text(verification: Verification) -> str:
    """The whole result: how many topics are equal, a line for each namespace, and the topics that are not equal."""
    lines = [line for namespace in verification.namespaces for line in _namespace(namespace, verification)]
    return "\n".join([counts_text("Topics", verification.topics), *lines, *_conclusion(verification.verdict)])


def counts_text(noun: str, counts: Mapping[Verdict, int]) -> str:
    """One line with the number of parts by verdict, such as `Topics: 12 equal, 1 different, 0 inconclusive`."""
    return f"{noun}: {', '.join(f'{number:,} {verdict}' for verdict, number in counts.items())}"


def namespace_summary(namespace: NamespaceVerdict, restriction: str = "") -> str:
    """One line for the ledger, a log or a table; with the restriction of a verdict `equal`."""
    topics = counted(len(namespace.names), "topic")
    if namespace.verdict is Verdict.EQUAL:
        messages, before = counted(namespace.proven, "message"), namespace.proven - namespace.messages
        continued = f", {before:,} of them by an earlier proof" if before else ""
        return f"equal{f' {restriction}' if restriction else ''}: {messages} in {topics}{continued}"
    wrong = [topic for topic in namespace.topics if topic.verdict is namespace.verdict]
    if not wrong:
        return "inconclusive: nothing was compared"
    first = wrong[0]
    return f"{namespace.verdict}: {len(wrong):,} of {topics}, first {first.label}: {_in_short(first)}"


def _namespace(namespace: NamespaceVerdict, verification: Verification) -> Iterator[str]:
    if namespace.verdict is Verdict.EQUAL:
        restriction = f"; {verification.restriction}" if verification.restriction else ""
        compared = f"{counted(namespace.messages, 'message')} in {counted(len(namespace.names), 'topic')} on both sides"
        yield f"EQUAL      {namespace.namespace}: {compared}{restriction}"
    elif not namespace.topics:
        yield f"INCONCLUSIVE  {namespace.namespace}: nothing was compared"
    for topic in namespace.topics:
        if topic.verdict is not Verdict.EQUAL:
            yield f"{topic.verdict.upper()}  {topic.label}: {_in_short(topic)}"
            yield from (
                f"  {_difference(difference, verification.source, verification.target)}"
                for difference in topic.differences
            )
            named = sum(difference.kind is not Kind.REORDERED for difference in topic.differences)
            if topic.differing > named > 0:
                yield f"  … and {topic.differing - named:,} more"
        yield from (f"  note  {topic.topic}: {note}" for note in topic.notes)


def _in_short(topic: TopicVerdict) -> str:
    if topic.verdict is Verdict.DIFFERENT and topic.differing:
        contents = f"{topic.differing:,} of {max(topic.source_messages, topic.target_messages):,} messages"
        return f"{contents}; {topic.reason}" if topic.reason else contents
    return topic.reason


def _difference(difference: Difference, source: str, target: str) -> str:
    at_source, at_target = f"{source} {difference.source}", f"{target} {difference.target}"
    if difference.kind is Kind.ALTERED:
        changes = ", ".join(f"{name} {old} → {new}" for name, old, new in difference.fields)
        return f"altered: {_fields(difference)}  {at_source} = {at_target}  {changes}{_why(difference)}"
    if difference.kind is Kind.REORDERED:
        _, old, new = difference.fields[0]
        places = f"place {old} in {source}, {new} in {target}"
        owner = f"{_key(difference)}  producer {difference.producer!r}"
        return f"reordered  {at_source} = {at_target}  {places}  {owner}"
    where = " = ".join(
        at for at, position in ((at_source, difference.source), (at_target, difference.target)) if position is not None
    )
    side = f"missing on {target}" if difference.kind is Kind.MISSING else f"extra on {target}"
    numbers = zip(difference.copies or (), (source, target), strict=False)
    copies = "  " + ", ".join(f"{number} × in {cluster}" for number, cluster in numbers) if difference.copies else ""
    message = f"{_key(difference)}  {_time(difference.publish_time)}  producer {difference.producer!r}"
    return f"{side}  {where}  {message}{copies}{_why(difference)}"


def _key(difference: Difference) -> str:
    return "no key" if difference.key is None else f"key {difference.key!r}"


def _why(difference: Difference) -> str:
    return f"  why: {difference.cause.sentence}" if difference.cause and difference.cause is not Cause.ALTERED else ""


def _fields(difference: Difference) -> str:
    return ", ".join(name.partition(" '")[0] for name, _, _ in difference.fields)


def _time(milliseconds: int) -> str:
    if not 0 <= milliseconds < _YEAR_10000_MS:
        return f"{milliseconds} ms since 1970"
    shown = datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
    return shown.removesuffix("+00:00") + "Z"


def _conclusion(verdict: Verdict) -> Iterator[str]:
    if verdict is Verdict.DIFFERENT:
        yield "The bounds stated above do not explain the differences. The verification failed."
    elif verdict is Verdict.INCONCLUSIVE:
        yield "INCONCLUSIVE parts are not proven. The verification failed: remove the reason and verify again."


_TOPIC_FIELDS = ("topic", "verdict", "source_messages", "target_messages", "differing", "reordered", "reason", "engine")
_DIFFERENCE_FIELDS = ("kind", "source", "target", "key", "publish_time", "producer", "cause")


def verdict_tables(verification: Verification) -> dict[str, bytes]:
    """Two Parquet files by name: `topics.parquet` and `differences.parquet`, which is empty if everything is equal."""
    topics, differences = [], []
    for namespace in verification.namespaces:
        for topic in namespace.topics:
            plain = topic.to_json()
            bounds = {f"{side}_bounds": topic.bounds.get(side, "") for side in Side}
            notes = {"notes": "\n".join(topic.notes), "proof": json.dumps(topic.proof)}
            topics.append(
                {"namespace": namespace.namespace, **{name: plain[name] for name in _TOPIC_FIELDS}} | bounds | notes
            )
            for difference in plain["differences"]:
                fields = {"fields": json.dumps(difference["fields"]), "copies": json.dumps(difference["copies"])}
                differences.append(
                    {"topic": topic.topic, **{name: difference[name] for name in _DIFFERENCE_FIELDS}, **fields}
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
