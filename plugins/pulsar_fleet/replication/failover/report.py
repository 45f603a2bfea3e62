"""A forecast and an outcome as text: first whether something is lost, then a row for each subscription, then what to do
(pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.text import command_line, counted, listed
from pulsar_fleet.replication.failover.forecast import Agreement, FailoverOutcome, Forecast, ForecastRow, OutcomeRow
from pulsar_fleet.replication.failover.prepare import Prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """How the operator named the clusters and the run, for printed commands.

    :param origin, target: admin URLs or connection ids.
    """

    origin: str
    target: str
    run: str

    def command(self, name: str, forecast: Forecast) -> str:
        """A command for the same clusters and the same selection."""
        selection = (word for text in forecast.selection for word in ("--select", text))
        return command_line(name, self.origin, self.target, *selection)


def forecast_text(forecast: Forecast, addresses: Addresses) -> str:
    """The whole forecast, with the commands that follow it."""
    steps = enumerate(_order(forecast, forecast.rows(), addresses), 1)
    return "\n".join([forecast_body(forecast), "Do:", *(f"  {number}. {text}{run}" for number, (text, run) in steps)])


def forecast_commands(forecast: Forecast, addresses: Addresses) -> list[str]:
    """The commands that the text names, in its order."""
    return [command for _, command in _order(forecast, forecast.rows(), addresses) if command]


def forecast_body(forecast: Forecast) -> str:
    """The forecast without what to do."""
    rows = forecast.rows()
    lines = [headline(forecast), *_totals(forecast, rows), ""]
    lines += _table(("redelivered", "first", "lost"), ((row, (row.redelivered, row.first, row.lost)) for row in rows))
    return "\n".join([*lines, "", *_row_notes(forecast, rows), *_topic_notes(forecast)])


def headline(forecast: Forecast) -> str:
    """`Failover blue → green: 5 subscriptions of 2 topics, as of …`."""
    rows = forecast.rows()
    topics = len({row.topic for row in rows})
    return (
        f"Failover {forecast.origin} → {forecast.target}: {counted(len(rows), 'subscription')} of "
        f"{counted(topics, 'topic')}, as of {forecast.at}"
    )


def prepared_text(prepared: Prepared) -> str:
    """What was created and flagged."""
    created = [subscription for subscription in prepared.subscriptions if subscription.created_at]
    flagged = [subscription for subscription in prepared.subscriptions if not subscription.created_at]
    lines = [
        f"Created {counted(len(created), 'subscription')} on {prepared.target}, "
        f"set the flag of {len(flagged):,} others."
    ]
    lines += [f"  + {item.topic} {item.subscription!r} from {item.created_at}, replicated" for item in created]
    return "\n".join([*lines, *(f"  ~ {item.topic} {item.subscription!r} replicated" for item in flagged)])


def owner_steps(forecast: Forecast) -> str:
    """What the owners of the applications do before a run that prepares `to` is approved, as a sentence each."""
    if forecast.origin_unreachable:
        return f"{forecast.origin} does not answer. Approve, then start the consumers on {forecast.target}."
    return (
        f"Stop the consumers on {forecast.origin} and wait until nothing waits for replication to {forecast.target}; "
        f"then approve. The run creates the subscriptions that {forecast.target} lacks and forecasts again; when it "
        f"waits for the applications, start them on {forecast.target}."
    )


def not_ready(forecast: Forecast, *, accept_lost: bool) -> str:
    """Why applications must not be started on `to` yet; empty if they may."""
    if forecast.origin_unreachable:
        return ""
    consumers = sum(row.consumers for row in forecast.rows() if row.replicated)
    if consumers:
        return (
            f"{counted(consumers, 'consumer')} of replicated subscriptions connected to {forecast.origin}: stop them, "
            "then clear this task."
        )
    if (forecast.lost or not forecast.is_complete) and not accept_lost:
        return (
            "Messages would be lost, or it is unknown. Wait for replication, then clear this task; or start a run with "
            f"'accept_lost'.\n{forecast_body(forecast)}"
        )
    return ""


def waiting_text(target: str, rows: Sequence[OutcomeRow]) -> str:
    """Which applications have not caught up, as one line; empty without any."""
    if not rows:
        return ""
    to_come = sum(row.redelivered_to_come + row.first_to_come for row in rows)
    names = listed(f"{row.subscription} of {row.topic}" for row in rows)
    return (
        f"{counted(to_come, 'message')} to be acknowledged on {target} by {counted(len(rows), 'subscription')}: {names}"
    )


def outcome_text(outcome: FailoverOutcome, addresses: Addresses) -> str:
    """The whole outcome, with what to do."""
    steps = (f"{text}{command}" for text, command in _after(outcome, outcome.rows(), addresses))
    return "\n".join([verdict(outcome), "", outcome_body(outcome), "", *steps])


def outcome_commands(outcome: FailoverOutcome, addresses: Addresses) -> list[str]:
    """The commands that the text names."""
    return [command for _, command in _after(outcome, outcome.rows(), addresses) if command]


def outcome_body(outcome: FailoverOutcome) -> str:
    """A row for each subscription, and why it is not as predicted."""
    rows = outcome.rows()
    counts = (
        (row, (row.predicted_redelivered, row.redelivered, row.redelivered_to_come, row.first, row.lost))
        for row in rows
    )
    lines = _table(("predicted", "redelivered", "to come", "first", "lost"), counts)
    return "\n".join([*lines, *(_outcome_note(row) for row in rows if row.agreement is not Agreement.AS_PREDICTED)])


def verdict(outcome: FailoverOutcome) -> str:
    """`Failover blue → green: as predicted. 0 messages lost, …`."""
    lost = [row.lost for row in outcome.rows()]
    redelivered = sum(row.redelivered or 0 for row in outcome.rows())
    loss = f"{counted(sum(count or 0 for count in lost), 'message')} lost"
    unknown = ", of others it is unknown" if None in lost else ""
    return (
        f"Failover {outcome.origin} → {outcome.target}: {outcome.agreement.value}. {loss}{unknown}, "
        f"{counted(redelivered, 'message')} redelivered; forecast of {outcome.forecast_at}, read {outcome.at}"
    )


def _totals(forecast: Forecast, rows: Sequence[ForecastRow]) -> Iterator[str]:
    if forecast.origin_unreachable:
        yield f"UNKNOWN      {forecast.origin} does not answer: {forecast.origin_unreachable}"
        yield f"             Below is what {forecast.target} has; redeliveries and losses cannot be counted."
        return
    losing = [row for row in rows if row.lost]
    if losing:
        waiting = sum(row.unreplicated for row in rows)
        stay = f", {waiting:,} of them stay on {forecast.origin} until it comes back" if waiting else ""
        messages = counted(forecast.lost, "message")
        of = counted(len(losing), "subscription")
        yield f"LOST         {messages} of {of} not delivered on {forecast.target}{stay}"
    if unknown := sum(row.lost is None for row in rows) + len(forecast.unread_topics) + len(forecast.unread):
        yield f"UNKNOWN      {unknown:,} of the rows, topics or namespaces could not be counted"
    if not forecast.topics:
        yield f"Nothing was counted: {forecast.origin} replicates no selected topic to {forecast.target}."
    elif not losing and not unknown:
        yield "Nothing is lost."
    yield f"REDELIVERED  {counted(forecast.redelivered, 'message')} on {forecast.target}"


def _row_notes(forecast: Forecast, rows: Sequence[ForecastRow]) -> Iterator[str]:
    target = forecast.target
    for row in rows:
        name = f"{row.topic} {row.subscription!r}"
        if row.unknown:
            yield f"  ! {name}: unknown: {row.unknown}"
            continue
        if row.missing:
            where = f" on {row.missing} of {row.partitions} partitions" if row.partitions > 1 else ""
            yield (
                f"  ! {name}: {target} has no such subscription{where}; a client creates it at the end. Created "
                f"before, {row.redelivered_if_created:,} are redelivered and {row.lost_if_created:,} lost."
            )
        elif row.lost:
            yield f"  ! {name}: {_why_lost(row, forecast)}"
        if not row.replicated:
            yield (
                f"  ! {name}: not a replicated subscription: its acknowledgements stay on {forecast.origin}. Its "
                "clients must subscribe with the replicated state, or its flag must be set."
            )


def _why_lost(row: ForecastRow, forecast: Forecast) -> str:
    key = row.topic, row.subscription
    parts = [
        part
        for topic, part in forecast.subscriptions()
        if (str(TopicName.parse(topic.topic).parent), part.subscription) == key
    ]
    skipped = sum(part.lost.skipped.messages for part in parts)
    absent = sum(part.lost.absent for part in parts)
    reasons = [
        (row.unreplicated, f"not yet replicated: they stay on {forecast.origin}"),
        (skipped, f"acknowledged on {forecast.target} and not on {forecast.origin}"),
        (absent, f"{forecast.target} has no copy: published before replication began, without it, or removed there"),
    ]
    return "; ".join(f"{count:,} {why}" for count, why in reasons if count)


def _topic_notes(forecast: Forecast) -> Iterator[str]:
    for text in forecast.unread:
        yield f"  ! unknown: {text}"
    for topic in forecast.unread_topics:
        yield f"  ! {topic.topic}: unknown: {topic.unknown}"
    for topic in forecast.topics:
        if not topic.exists_on_to:
            yield f"  ! {topic.topic}: {forecast.target} has no such topic"
        elif topic.unreplicated is None and not topic.unknown and not forecast.origin_unreachable:
            yield f"  ! {topic.topic}: {forecast.origin} does not replicate it to {forecast.target}"
    yield from _position_notes(forecast)


def _position_notes(forecast: Forecast) -> Iterator[str]:
    """Why positions are not copied, for each topic with a replicated subscription that has messages redelivered."""
    reasons: dict[str, str] = {}
    for topic in forecast.topics:
        held = [
            part for part in topic.subscriptions if part.replicated and (part.redelivered.messages or part.is_missing)
        ]
        others = [name for name in topic.sent_to if name != forecast.target]
        if not held:
            continue
        if topic.silent:
            reason = (
                f"{' and '.join(topic.silent)} does not replicate back to {forecast.origin} now: no position is copied "
                f"to {forecast.target} before every cluster of the topic's list has answered"
            )
        elif others:
            reason = (
                f"a position is copied to {forecast.target} when {' and '.join(others)} has answered too; pulsar-fleet "
                "doctor, with all these clusters, names one that does not"
            )
        else:
            continue
        reasons.setdefault(str(TopicName.parse(topic.topic).parent), reason)
    yield from (f"  ! {name}: {reason}" for name, reason in reasons.items())


def _order(forecast: Forecast, rows: Sequence[ForecastRow], addresses: Addresses) -> Iterator[tuple[str, str]]:
    """The order of steps for the owner of the applications: what to do, and the command that does it, if one does."""
    origin, target = forecast.origin, forecast.target
    check = addresses.command("forecast-failover", forecast)
    if forecast.origin_unreachable:
        yield f"If {origin} comes back before the move, forecast again: ", check
        yield f"Start the consumers on {target}.", ""
        return
    if any(row.missing and row.replicated for row in rows):
        yield f"Create what {target} lacks: ", f"{addresses.command('prepare-failover', forecast)} --yes"
    consumers = sum(row.consumers for row in rows)
    connected = f"{counted(consumers, 'consumer')} connected now" if consumers else "none is connected now"
    yield f"Stop the consumers on {origin} while it is alive ({connected}).", ""
    waiting = sum(topic.unreplicated or 0 for topic in forecast.topics)
    yield f"Wait until nothing waits for replication to {target} ({waiting:,} entries now).", ""
    yield "Check again: ", check
    yield f"Start the consumers on {target}.", ""
    yield (
        "When they have caught up, with the run of the last forecast: ",
        command_line("failover-outcome", addresses.run),
    )


def _outcome_note(row: OutcomeRow) -> str:
    to_come = f"{row.redelivered_to_come:,} to be redelivered, {row.first_to_come:,} to be delivered first"
    reasons = "; ".join(row.reasons) or to_come
    return f"  ! {row.topic} {row.subscription!r}: {row.agreement.value}: {reasons}"


def _after(outcome: FailoverOutcome, rows: Sequence[OutcomeRow], addresses: Addresses) -> Iterator[tuple[str, str]]:
    command = command_line("failover-outcome", addresses.run)
    if any(row.lost != 0 for row in rows):
        yield f"Do: when {outcome.origin} is back and its replication has caught up: ", command
        yield f"    What is lost even then is on {outcome.origin} only: connect a consumer there.", ""
    elif outcome.agreement is Agreement.UNFINISHED:
        yield "Do: when the applications have caught up: ", command
    else:
        yield "Nothing to do.", ""


def _table(
    headings: Sequence[str], rows: Iterable[tuple[ForecastRow | OutcomeRow, Sequence[int | None]]]
) -> Iterator[str]:
    """A line for each subscription: the numbers in columns, then its topic and name; `?` is unknown."""
    yield "".join(f"{heading:>12}" for heading in headings) + "   subscription, in messages"
    for row, counts in rows:
        numbers = "".join(f"{'?' if count is None else format(count, ','):>12}" for count in counts)
        yield f"{numbers}   {row.subscription}  {row.topic}"
