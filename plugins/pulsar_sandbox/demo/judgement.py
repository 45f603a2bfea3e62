"""What the demo shows in the end, and whether all of it held (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pulsar_sandbox.demo.story import DAGS, Outcome

_AS_PREDICTED = "as the switch predicted: written to blue after their subscriptions had their places on green"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the summary; `held` None where nothing is judged."""

    word: str
    sentence: str
    held: bool | None = None


def judge(outcome: Outcome) -> tuple[Line, ...]:
    """The summary; the demo succeeded if no line has `held` False."""
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
    yield Line("evidence", f"{outcome.artefacts} (reports, plans, digests), {_ledger(outcome)}")


def _traffic(outcome: Outcome) -> Iterator[Line]:
    tally = outcome.tally
    if tally is None:
        yield Line("traffic", "was not counted, because a run failed", False)
        return
    words = dict(tally.lines())
    yield Line("clients", words["clients"], tally.finished)
    yield Line("silence", words["silence"])
    yield Line("messages", words["messages"], tally.lost == 0 and tally.order_breaks == 0)
    yield Line("duplicates", explain_duplicates(outcome))


def explain_duplicates(outcome: Outcome) -> str:
    """How many messages a subscription got twice, and why."""
    tally = outcome.tally
    if tally is None or not tally.duplicates:
        return "none"
    predicted = sum(outcome.window[one.topic] for one in tally.subscriptions)
    other = sum(one.duplicates.other for one in tally.subscriptions)
    kinds = {
        "were in flight when blue closed their topic, stored there, and sent again to green": "in_flight",
        "were delivered again after a consumer had reconnected": "redelivered",
        "were sent again after an error": "resent",
        _AS_PREDICTED if other == predicted else "for another reason": "other",
    }
    counted = {
        text: sum(getattr(subscription.duplicates, name) for subscription in tally.subscriptions)
        for text, name in kinds.items()
    }
    return "; ".join(f"{count} {text}" for text, count in counted.items() if count)


def _archive(outcome: Outcome) -> Iterator[Line]:
    if not outcome.archive or outcome.tally is None or outcome.estate is None:
        return
    stored = outcome.tally.published + outcome.estate.spec.history * len(outcome.archive)
    different = sum(distinct for _, distinct in outcome.archive.values())
    got = sum(count for count, _ in outcome.archive.values())
    yield Line(
        "archive",
        f"the idle subscription holds {different:,} of the {stored:,} messages ever written"
        + (f", {got - different} of them twice" if got > different else ""),
        different == stored,
    )


def _ledger(outcome: Outcome) -> str:
    return f"ledger {outcome.artefacts.parent / 'ledger.db'}" if outcome.artefacts else "no ledger"
