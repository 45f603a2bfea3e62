"""What a pass reports: sums over passes, what needs an operator, and the text of a line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.read_only.forwarding.request import Request
from pulsar_fleet.read_only.forwarding.results import ForwardingResult, State, SubscriptionResult, together
from pulsar_fleet.report.acknowledgments import forwarding_report, metrics

ROW = SubscriptionResult(
    topic="persistent://acme/readers/events",
    subscription="billing",
    state=State.FORWARDED,
    forwarded=7,
    position="7:3",
    owner_position="7:3",
    holes=2,
    owner_holes=2,
)
PASS = ForwardingResult(cluster="blue", subscriptions=(ROW,), calls=9, seconds=0.5)


def with_row(**changes: object) -> ForwardingResult:
    return replace(PASS, subscriptions=(replace(ROW, **changes),))


def test_numbers_of_passes_are_added_and_the_last_state_counts() -> None:
    result = with_row(forwarded=2, state=State.WAITING, waiting=1).after(PASS)
    assert (result.forwarded, result.waiting, result.passes, result.calls, result.seconds) == (9, 1, 2, 18, 1.0)
    assert not result.complete
    assert ForwardingResult.from_json(result.to_json()) == result


def test_results_of_namespaces_are_put_together() -> None:
    result = together([PASS, replace(PASS, problems=("x is not forwarded.",))])
    assert (result.forwarded, result.calls, result.problems) == (14, 18, ("x is not forwarded.",))


@pytest.mark.parametrize("state", [State.REFUSED, State.POSITION_NOT_CONFIRMED])
def test_what_no_repetition_corrects_needs_an_operator(state: State) -> None:
    (fault,) = with_row(state=state, waiting=3).faults()
    assert f"billing: {state.value}, 7 entries forwarded, 3 waiting" in fault


def test_a_subscription_that_only_readers_have_needs_nobody() -> None:
    result = with_row(state=State.OWNER_MISSING, forwarded=0, owner_position="", owner_holes=0)
    assert (result.faults(), result.complete, result.identical) == ([], True, 0)
    assert "owner none and 0 holes; let the owner create it, or set create_missing" in result.rest()[0]


def test_a_report_has_positions_and_holes_of_both_sides() -> None:
    report = forwarding_report(
        with_row(waiting=1, state=State.WAITING, owner_position="7:2", owner_holes=1), {}
    ).markdown()
    assert "| persistent://acme/readers/events | billing | waiting | 7 | 1 | 0 | 7:3 | 7:2 | 2 | 1 |" in report
    assert forwarding_report(None, {"forward_acknowledgments": "no answer"}).markdown().startswith("# Failed in")
    assert metrics(PASS) == {
        "forwarded": 7.0,
        "waiting": 0.0,
        "subscriptions": 1.0,
        "identical": 1.0,
        "faults": 0.0,
        "seconds": 0.5,
    }


@pytest.mark.parametrize(
    "conf",
    [
        {},
        {"namespace": "acme/readers", "poll_seconds": -1},
        {"namespace": "acme/readers", "topics": ["events"]},
        {"namespace": "acme/readers", "subscriptions": ["a"], "accept_positions": ["b"]},
    ],
)
def test_invalid_settings_are_refused(conf: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        Request.of(conf)
