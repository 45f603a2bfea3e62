"""Change windows and freezes: open or not, and if not, since when and until when, in one sentence."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.migration.waves.change_windows import Calendar, Window

NIGHTS = "Mon-Fri 22:00-04:00 Europe/Berlin"
HOLIDAYS = "2026-12-24T00:00/2027-01-02T06:00 Europe/Berlin"
BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("now", "granted"),
    [
        ("2026-11-20T21:59", False),
        ("2026-11-20T22:00", True),  # a Friday
        ("2026-11-21T03:59", True),
        ("2026-11-21T04:00", False),
        ("2026-11-21T23:00", False),
        ("2026-11-23T01:00", False),  # the night that began on Sunday
        ("2026-11-24T01:00", True),
    ],
)
def test_a_weekly_window_belongs_to_the_day_on_which_it_begins(now: str, granted: bool) -> None:
    assert Calendar.parse([NIGHTS]).permission(at(now), "Wave 2").granted is granted


@pytest.mark.parametrize(
    ("allowed", "frozen", "now", "sentence"),
    [
        (
            [NIGHTS],
            [],
            "2026-11-20T14:05",
            "Wave 2 waits: no change window is open (Mon-Fri 22:00-04:00 Europe/Berlin); it may be cut over from "
            "2026-11-20 22:00 CET on, in 7 h 55 min.",
        ),
        (
            [],
            [HOLIDAYS],
            "2026-12-31T06:00",
            f"Wave 2 waits: a freeze is active ({HOLIDAYS}); it may be cut over from 2027-01-02 06:00 CET on, in "
            "48 h 0 min.",
        ),
        (
            [NIGHTS],
            [HOLIDAYS],
            "2026-12-31T23:00",
            f"Wave 2 waits: a freeze is active ({HOLIDAYS}); it may be cut over from 2027-01-04 22:00 CET on, in "
            "95 h 0 min.",
        ),
        (
            ["2026-01-01T00:00/2026-01-02T00:00"],
            [],
            "2026-12-31T23:00",
            "Wave 2 waits: no change window is open (2026-01-01T00:00/2026-01-02T00:00); none opens within 14 days: "
            "correct 'change_windows' (--change-windows).",
        ),
    ],
)
def test_a_wave_that_must_wait_says_why_and_until_when(
    allowed: list[str], frozen: list[str], now: str, sentence: str
) -> None:
    result = Calendar.parse(allowed, frozen).permission(at(now), "Wave 2")
    assert (result.granted, result.sentence) == (False, sentence)


def test_without_windows_every_time_is_one() -> None:
    assert Calendar().permission(datetime.now(UTC), "Wave 1").granted


def test_a_window_by_the_clock_on_the_wall_follows_the_change_of_clocks() -> None:
    night = Calendar.parse(["daily 02:30-05:00 Europe/Berlin"])
    assert night.permission(datetime(2026, 3, 30, 0, 45, tzinfo=UTC), "Wave 1").granted
    assert not night.permission(datetime(2026, 3, 28, 0, 45, tzinfo=UTC), "Wave 1").granted


@given(st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC)))
def test_what_opens_is_open_then(now: datetime) -> None:
    calendar = Calendar.parse([NIGHTS, "Sat,Sun 10:00-12:00"], [HOLIDAYS])
    result = calendar.permission(now, "Wave 1")
    assert result.granted or result.opens is None or calendar.permission(result.opens, "Wave 1").granted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("weekends", "it is neither a time of the week nor two times"),
        ("Mon-Fry 22:00-04:00", "'Mon-Fry' is not a day of the week"),
        ("Mon 25:00-26:00", "25:00 is not a time of day"),
        ("Mon 22:00-04:00 Europe/Nowhere", "'Europe/Nowhere' is not a time zone"),
        ("2026-12-24/yesterday", "its times are not ISO 8601"),
        ("2027-01-01T00:00/2026-12-24T00:00", "it ends before it begins"),
        ("", "it is neither"),
    ],
)
def test_what_is_no_window_is_refused_with_an_example(text: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        Window.parse(text)
    assert words in str(error.value)
    assert "write 'Mon-Fri 22:00-04:00 Europe/Berlin'" in str(error.value)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        Calendar().permission(datetime(2026, 1, 1), "Wave 1")
