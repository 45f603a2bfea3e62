"""The outcome of a subscription: from the positions on the target, and from what its consumers were given there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pulsar_fleet.messages.positions import Intervals
from pulsar_fleet.replication.failover.forecast import (
    Agreement,
    CountedEntries,
    FailoverOutcome,
    Forecast,
    Lost,
    SubscriptionForecast,
    SubscriptionOutcome,
    TopicForecast,
    TopicLoad,
)
from pulsar_fleet.replication.failover.outcome_reader import CursorNow, Since, evaluate
from pulsar_fleet.replication.failover.report import Addresses, forecast_text, not_ready, outcome_text

TOPIC = "persistent://acme/orders/events"
ADDRESSES = Addresses(origin="pulsar_blue", target="pulsar_green", run="cli/forecast-failover-1")
QUIET = Since(unreplicated=Intervals())


def entries(begin: int, end: int, messages: int = 1) -> CountedEntries:
    return CountedEntries.of((number, messages) for number in range(begin, end))


FORECAST = SubscriptionForecast(
    subscription="billing",
    replicated=True,
    replicated_on_to=True,
    mark_delete="3:19",
    mark_delete_on_to="5:9",
    redelivered=entries(10, 20),
    first=entries(20, 30, 2),
)


def outcome(
    forecast: SubscriptionForecast = FORECAST,
    *,
    unread: tuple[int, int] = (0, 0),
    later: int | None = 0,
    delivered: int | None = 30,
    since: Since = QUIET,
) -> SubscriptionOutcome:
    now = CursorNow(unread=Intervals.of([unread]), later_acknowledged=later, delivered=delivered)
    return evaluate(TOPIC, forecast, now, since, ("blue", "green"))


def test_everything_acknowledged_is_as_predicted() -> None:
    result = outcome()
    assert (result.agreement, result.redelivered, result.first, result.lost) == (Agreement.AS_PREDICTED, 10, 20, 0)


def test_what_is_not_acknowledged_yet_is_to_come() -> None:
    result = outcome(unread=(15, 30), delivered=5)
    assert (result.agreement, result.redelivered, result.redelivered_to_come) == (Agreement.UNFINISHED, 5, 5)
    assert (result.first, result.first_to_come) == (0, 20)


def test_acknowledgements_that_replication_passed_on_were_not_delivered() -> None:
    result = outcome(delivered=26)
    assert (result.agreement, result.redelivered, result.passed_on) == (Agreement.DIFFERENT, 6, 4)
    assert "4 messages acknowledged on green without a delivery there" in result.reasons[0]


def test_messages_that_came_after_the_forecast_do_not_count_as_redelivered() -> None:
    assert outcome(later=7, delivered=37).agreement is Agreement.AS_PREDICTED


def test_without_a_count_acknowledged_messages_count_as_delivered() -> None:
    result = outcome(later=None)
    assert (result.redelivered, result.agreement) == (10, Agreement.AS_PREDICTED)
    assert "green has removed messages since" in result.reasons[0]


def test_after_a_load_of_the_topic_acknowledged_is_delivered() -> None:
    result = outcome(delivered=None)
    assert (result.redelivered, result.agreement) == (10, Agreement.AS_PREDICTED)
    assert "the topic was loaded again on green" in result.reasons[0]


def test_a_load_begins_a_ledger_and_a_full_ledger_is_no_load() -> None:
    before = TopicLoad(5, 40)
    assert not before.is_before(TopicLoad(5, 47), 7)
    assert not before.is_before(TopicLoad(6, 47), 7)
    assert before.is_before(TopicLoad(6, 3), 7)
    assert before.is_before(TopicLoad(6, 0), 0)
    assert TopicLoad(5, 0).is_before(TopicLoad(6, 0), 0)


def test_consumers_that_went_on_at_the_first_cluster_are_a_difference() -> None:
    result = outcome(since=Since(unreplicated=Intervals(), delivered=8))
    assert result.agreement is Agreement.DIFFERENT
    assert "up to 8 of the 20 that count as first were redelivered" in result.reasons[0]


def test_what_waited_for_replication_is_lost_until_it_has_a_copy() -> None:
    forecast = SubscriptionForecast(
        subscription="billing", mark_delete_on_to="5:9", lost=Lost(unreplicated=entries(40, 44), absent=1)
    )
    waiting = Intervals.of([(42, 44)])
    assert outcome(forecast, delivered=0, since=Since(unreplicated=waiting)).lost == 3
    assert outcome(forecast, delivered=0).lost == 1
    unknown = outcome(forecast, delivered=0, since=Since(unreplicated=None))
    assert (unknown.lost, unknown.agreement) == (None, Agreement.UNKNOWN)


def test_a_subscription_that_its_client_created_at_the_end_lost_the_rest() -> None:
    forecast = SubscriptionForecast(subscription="idle", mark_delete="3:-1", lost=Lost(uncreated=entries(0, 50)))
    at_the_end, at_the_beginning = outcome(forecast, delivered=0), outcome(forecast, delivered=53)
    assert (at_the_end.lost, at_the_end.first) == (50, 0)
    assert (at_the_beginning.lost, at_the_beginning.first, at_the_beginning.redelivered) == (0, 50, 3)


def test_a_subscription_that_has_not_connected_is_unfinished() -> None:
    result = evaluate(TOPIC, FORECAST, None, QUIET, ("blue", "green"))
    assert (result.agreement, result.lost) == (Agreement.UNFINISHED, None)


def test_what_the_forecast_does_not_know_stays_unknown() -> None:
    result = outcome(SubscriptionForecast(subscription="billing", unknown="blue does not answer"))
    assert (result.agreement, result.redelivered, result.lost) == (Agreement.UNKNOWN, None, None)


def forecast_of(*subscriptions: SubscriptionForecast, **fields: Any) -> Forecast:
    topic = TopicForecast(topic=TOPIC, unreplicated=0, subscriptions=subscriptions)
    return Forecast(
        origin="blue",
        target="green",
        at="2026-11-25T03:00:00+00:00",
        selection=("acme/orders",),
        topics=(topic,),
        **fields,
    )


def test_a_namespace_whose_topic_lists_are_unknown_is_never_nothing_lost() -> None:
    known = SubscriptionForecast(subscription="billing", replicated=True, mark_delete="3:1", mark_delete_on_to="3:1")
    addresses = Addresses(origin="blue", target="green", run="cli/now")
    assert "Nothing is lost." in forecast_text(forecast_of(known), addresses)
    forecast = forecast_of(known, unread=("acme/audit: blue: the topic policies cannot be read: denied.",))
    text = forecast_text(forecast, addresses)
    assert (forecast.is_complete, "Nothing is lost." in text) == (False, False)
    assert "UNKNOWN      1 of the rows, topics or namespaces" in text
    assert "! unknown: acme/audit: blue: the topic policies cannot be read: denied." in text


def test_the_text_says_which_cluster_does_not_answer_for_positions() -> None:
    behind = SubscriptionForecast(
        subscription="billing", replicated=True, mark_delete="3:9", mark_delete_on_to="3:1", redelivered=entries(0, 8)
    )
    addresses = Addresses(origin="blue", target="green", run="cli/now")
    forecast = forecast_of(behind)
    (topic,) = forecast.topics

    def text(**fields: Any) -> str:
        return forecast_text(replace(forecast, topics=(replace(topic, **fields),)), addresses)

    assert "far does not replicate back to blue now" in text(sent_to=("far", "green"), silent=("far",))
    assert "when far has answered too" in text(sent_to=("far", "green"))
    assert "position is copied" not in text(sent_to=("green",))


def test_the_text_begins_with_the_loss_and_the_command_that_prevents_it() -> None:
    idle = SubscriptionForecast(
        subscription="idle", replicated=True, mark_delete="3:-1", lost=Lost(uncreated=entries(0, 50)), create_at=0
    )
    lines = forecast_text(forecast_of(FORECAST, idle), ADDRESSES).splitlines()
    assert lines[1] == "LOST         50 messages of 1 subscription not delivered on green"
    assert lines[2] == "REDELIVERED  10 messages on green"
    prepare = "pulsar-fleet prepare-failover pulsar_blue pulsar_green --select acme/orders --yes"
    assert f"  1. Create what green lacks: {prepare}" in lines


def test_an_unreachable_cluster_is_unknown_and_its_consumers_go_on() -> None:
    forecast = forecast_of(
        SubscriptionForecast(subscription="billing", unknown="blue does not answer"), origin_unreachable="no route"
    )
    text = forecast_text(forecast, ADDRESSES)
    assert "UNKNOWN      blue does not answer: no route" in text
    assert "?" in text.splitlines()[5]
    assert "Stop the consumers" not in text
    assert Forecast.from_json(forecast.to_json()) == forecast


def test_a_stored_forecast_has_these_keys_and_is_read_back() -> None:
    document = FORECAST.to_json()
    assert document["redelivered"] == [[1, [[10, 20]]]]
    assert document["first"] == [[2, [[20, 30]]]]
    assert document["lost"] == {"skipped": [], "uncreated": [], "unreplicated": [], "absent": 0}
    forecast = forecast_of(FORECAST)
    assert Forecast.from_bytes(forecast.to_bytes()) == forecast


def test_applications_do_not_start_beside_old_consumers_or_with_a_loss() -> None:
    connected = replace(FORECAST, consumers=2)
    losing = replace(FORECAST, lost=Lost(absent=3))
    assert "2 consumers of replicated subscriptions connected to blue" in not_ready(
        forecast_of(connected), accept_lost=True
    )
    assert "Messages would be lost" in not_ready(forecast_of(losing), accept_lost=False)
    assert not_ready(forecast_of(losing), accept_lost=True) == not_ready(forecast_of(FORECAST), accept_lost=False) == ""


def test_the_outcome_says_first_how_it_agrees() -> None:
    both = FailoverOutcome(
        origin="blue", target="green", forecast_at="now", at="later", subscriptions=(outcome(), outcome(delivered=26))
    )
    text = outcome_text(both, ADDRESSES)
    assert text.startswith("Failover blue → green: different. 0 messages lost, 16 messages redelivered")
    assert FailoverOutcome.from_json(both.to_json()) == both


def part(number: int, *, first: int, **changed: Any) -> SubscriptionForecast:
    """A subscription of a partition in which every figure is another power of ten times `first`."""
    lost = Lost(
        skipped=entries(0, first), uncreated=entries(0, 10 * first), unreplicated=entries(0, 100 * first), absent=first
    )
    known = {
        "subscription": "billing",
        "replicated": True,
        "mark_delete_on_to": f"5:{number}",
        "consumers": first,
        "redelivered": entries(0, 2 * first),
        "first": entries(0, 3 * first, 2),
        "lost": lost,
        "redelivered_if_created": 5 * first,
    }
    return SubscriptionForecast(**{**known, **changed})


def of_parts(*parts: SubscriptionForecast, **changed: Any) -> Forecast:
    topics = tuple(
        TopicForecast(topic=f"{TOPIC}-partition-{number}", subscriptions=(one,)) for number, one in enumerate(parts)
    )
    known = {"origin": "blue", "target": "green", "at": "2026-03-02T21:00:00+00:00", "selection": ("acme/orders",)}
    return Forecast(**{**known, "topics": topics, **changed})


def test_a_row_adds_up_the_partitions_of_its_topic() -> None:
    (row,) = of_parts(part(0, first=1), part(1, first=2, mark_delete_on_to=None)).rows()
    assert (row.topic, row.subscription, row.partitions, row.missing) == (TOPIC, "billing", 2, 1)
    assert (row.replicated, row.consumers, row.unknown) == (True, 3, "")
    assert (row.redelivered, row.first, row.lost, row.unreplicated) == (6, 18, 336, 300)
    assert (row.redelivered_if_created, row.lost_if_created) == (21, 306)


def test_a_row_is_unknown_where_one_partition_is() -> None:
    forecast = of_parts(part(0, first=1), part(1, first=2, unknown="no answer", replicated=None))
    (row,) = forecast.rows()
    assert (row.redelivered, row.first, row.lost, row.redelivered_if_created, row.lost_if_created) == (None,) * 5
    assert (row.unknown, row.replicated, row.unreplicated) == ("no answer", True, 300)
    assert (forecast.redelivered, forecast.lost, forecast.is_complete) == (0, 0, False)


def test_a_subscription_that_replicates_on_one_partition_is_not_replicated() -> None:
    (row,) = of_parts(part(0, first=1), part(1, first=1, replicated=False)).rows()
    assert row.replicated is False


def test_a_forecast_adds_up_its_rows_and_is_complete_only_if_all_was_read() -> None:
    whole = of_parts(part(0, first=1), part(1, first=2, subscription="fraud"))
    assert [row.subscription for row in whole.rows()] == ["billing", "fraud"]
    assert (whole.redelivered, whole.lost, whole.is_complete, whole.unread_topics) == (6, 336, True, ())
    assert Forecast.from_json(whole.to_json()) == whole
    unread = TopicForecast(topic=f"{TOPIC}-partition-9", unknown="no owner")
    for changed in (
        {"topics": (*whole.topics, unread)},
        {"origin_unreachable": "blue does not answer."},
        {"unread": ("acme/payroll: denied",)},
    ):
        assert not replace(whole, **changed).is_complete
    assert replace(whole, topics=(*whole.topics, unread)).unread_topics == (unread,)


def test_a_topic_was_loaded_again_if_a_new_ledger_is_not_a_full_one() -> None:
    before = TopicLoad.of({"ledgers": [{"ledgerId": 3}, {"ledgerId": 7}], "entriesAddedCounter": 40})
    assert before == TopicLoad(7, 40)
    assert TopicLoad.of({}) == TopicLoad() == TopicLoad(-1, 0)
    assert not before.is_before(TopicLoad(7, 45), 5)
    assert not before.is_before(TopicLoad(9, 45), 5)
    assert before.is_before(TopicLoad(9, 5), 5)
    assert before.is_before(TopicLoad(9, 40), 0)
    assert not before.is_before(TopicLoad(7, 0), 0)
