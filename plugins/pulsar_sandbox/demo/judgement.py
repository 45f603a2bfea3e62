"""The summary of the demo, and whether every check passed (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.names import Position
from pulsar_sandbox.demo.story import DAGS, Outcome, Window
from pulsar_sandbox.workload.traffic.tally import Repetition, Tally

_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the summary; `passed` None where nothing is judged."""

    word: str
    sentence: str
    passed: bool | None = None


def judge(outcome: Outcome) -> tuple[Line, ...]:
    """The summary; the demo succeeded if no line has `passed` False."""
    return tuple(_lines(outcome))


def _lines(outcome: Outcome) -> Iterator[Line]:
    for dag_id in DAGS:
        run = outcome.runs.get(dag_id)
        if run is None:
            yield Line(dag_id, "did not run", False)
            continue
        yield Line(dag_id, f"{run.state} in {run.seconds:.0f} s", run.succeeded)
    yield from _traffic(outcome)
    yield from _archive(outcome)
    if outcome.artefacts:
        yield Line("evidence", str(outcome.artefacts))
        yield Line("ledger", str(outcome.artefacts.parent / "ledger.db"))


def _traffic(outcome: Outcome) -> Iterator[Line]:
    tally = outcome.tally
    if tally is None:
        yield Line("traffic", "was not counted, because a run failed", False)
        return
    words = dict(tally.lines())
    yield Line("clients", words["clients"], tally.finished)
    yield Line("pause", words["pause"])
    yield Line("messages", words["messages"], tally.lost == 0 and tally.order_breaks == 0)
    yield _duplicates(tally, outcome.windows)


def _duplicates(tally: Tally, windows: Mapping[str, Window]) -> Line:
    """How many messages a subscription got twice, and why; a repetition without a reason fails the demo."""
    causes: Counter[str] = Counter()
    unexplained: list[Repetition] = []
    for subscription in tally.subscriptions:
        duplicates = subscription.duplicates
        unpredicted = without_predicted(duplicates.unexplained, windows)
        causes["predicted"] += len(duplicates.unexplained) - len(unpredicted)
        unexplained += unpredicted
        for cause in ("in_flight", "restarted", "reconnected", "resent"):
            causes[cause] += getattr(duplicates, cause)
    restarted = [consumer.name for consumer in tally.consumers if consumer.restarted]
    texts = {
        "predicted": "as the cut-over predicted: written to blue after the cursors were set on green",
        "in_flight": "sent again by the client library, which had lost its connection before the answer",
        "restarted": f"delivered again after a restart of {', '.join(restarted)}",
        "reconnected": "delivered again after a consumer of their subscription had reconnected",
        "resent": "sent again by their application, after an error or its restart",
    }
    parts = [f"{causes[cause]:,} {text}" for cause, text in texts.items() if causes[cause]]
    if unexplained:
        parts.append(f"{len(unexplained):,} without a known reason ({_examples(unexplained)})")
    return Line("duplicates", "; ".join(parts) or "none", not unexplained)


def without_predicted(repetitions: tuple[Repetition, ...], windows: Mapping[str, Window]) -> list[Repetition]:
    """Those of one subscription's repetitions that the switch did not predict.

    It predicted as many for each partition as there are messages behind blue's `end`, and only those lie there.
    """
    unpredicted, predicted = [], Counter[str]()
    for repetition in repetitions:
        window = windows.get(repetition.partition)
        behind = window is not None and any(_is_behind(position, window.end) for position in repetition.positions)
        if window is not None and behind and predicted[repetition.partition] < window.messages:
            predicted[repetition.partition] += 1
        else:
            unpredicted.append(repetition)
    return unpredicted


def _is_behind(position: str, end: Position | None) -> bool:
    return end is None or Position.parse(position.partition(":")[2]) > end


def _examples(repetitions: list[Repetition]) -> str:
    texts = [
        f"{'/'.join(map(str, repetition.identity))} of {repetition.partition} at {' and '.join(repetition.positions)}"
        for repetition in repetitions[:_EXAMPLES]
    ]
    return ", ".join(texts)


def _archive(outcome: Outcome) -> Iterator[Line]:
    if not outcome.archive or outcome.tally is None or outcome.estate is None:
        return
    stored = outcome.tally.published + outcome.estate.spec.history * len(outcome.archive)
    different = sum(distinct for _, distinct in outcome.archive.values())
    got = sum(count for count, _ in outcome.archive.values())
    yield Line(
        "archive",
        f"the idle subscription has {different:,} of the {stored:,} messages ever written"
        + (f", {got - different} of them twice" if got > different else ""),
        different == stored,
    )
