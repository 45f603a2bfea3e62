"""Verdicts as a person reads them: first whether something is wrong, then numbers, then what to do (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from pulsar_fleet.verification.causes import Cause
from pulsar_fleet.verification.differences import Difference, Kind
from pulsar_fleet.verification.verdict import NamespaceVerdict, TopicVerdict, Verdict, Verification


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
