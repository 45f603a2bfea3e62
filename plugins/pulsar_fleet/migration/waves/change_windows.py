"""When a wave may be switched: change windows, in which it may, and freezes, in which it may not (pure).

One way of writing for both, with a time zone at the end (UTC without one):
`Mon-Fri 22:00-04:00 Europe/Berlin`, `Sat,Sun 00:00-24:00`, `daily 01:00-05:00`,
`2026-12-24T00:00/2027-01-02T06:00 Europe/Berlin`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pulsar_fleet.cluster.errors import InvalidRequest

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_WEEKLY = re.compile(r"^(?P<days>[A-Za-z,-]+) (?P<begin>\d\d:\d\d)-(?P<end>\d\d:\d\d)$")
_HORIZON_DAYS = 15
"""A weekly window comes again within this; a change window must open within it to be named."""


@dataclass(frozen=True, slots=True)
class Window:
    """A span of time, once or every week.

    :param text: as it was written.
    :param once: begin and end, or None for a weekly one.
    :param days: 0 (Monday) to 6, on which it begins.
    :param begin: minutes after midnight; `end` beyond 1440 is on the next day.
    """

    text: str
    zone: tzinfo
    once: tuple[datetime, datetime] | None = None
    days: frozenset[int] = frozenset()
    begin: int = 0
    end: int = 0

    @classmethod
    def parse(cls, text: str) -> Window:
        """Read one window; `InvalidRequest` with an example when it is none."""
        body, zone = _split_zone(text)
        if "/" in body:
            return cls(text, zone, once=_interval(text, body, zone))
        found = _WEEKLY.match(body)
        if not found:
            raise _not_a_window(text, "it is neither a time of the week nor two times with '/' between them")
        begin, end = _minutes(text, found["begin"]), _minutes(text, found["end"])
        return cls(text, zone, days=_days(text, found["days"]), begin=begin, end=end if end > begin else end + 24 * 60)

    def spans(self, around: datetime) -> Iterable[tuple[datetime, datetime]]:
        """Its begins and ends from the day before `around` on, in order, for the next two weeks."""
        if self.once:
            yield self.once
            return
        first = around.astimezone(self.zone).date() - timedelta(days=1)
        for number in range(_HORIZON_DAYS + 1):
            day = first + timedelta(days=number)
            if day.weekday() in self.days:
                yield self._at(day, self.begin), self._at(day, self.end)

    def _at(self, day: date, minutes: int) -> datetime:
        # By the clock on the wall: on a day when the clocks change, a window is an hour longer or shorter.
        return datetime.combine(
            day + timedelta(days=minutes // 1440), time(minutes % 1440 // 60, minutes % 60), self.zone
        )


@dataclass(frozen=True, slots=True)
class Permission:
    """Whether now is a time to switch; if not, `sentence` says why, and `opens` when it will be (None: not soon)."""

    granted: bool
    sentence: str
    opens: datetime | None = None


@dataclass(frozen=True, slots=True)
class Calendar:
    """Change windows and freezes; without change windows every time is one."""

    allowed: tuple[Window, ...] = ()
    frozen: tuple[Window, ...] = ()

    @classmethod
    def parse(cls, allowed: Sequence[str] = (), frozen: Sequence[str] = ()) -> Calendar:
        """Read both lists; `InvalidRequest` for the first that is no window."""
        return cls(tuple(map(Window.parse, allowed)), tuple(map(Window.parse, frozen)))

    def permission(self, now: datetime, wave: str) -> Permission:
        """Whether `wave` may be switched at `now` (with a time zone)."""
        if now.tzinfo is None:
            raise InvalidRequest("The time to be judged has no time zone: give one with it.")
        if self._open(now):
            return Permission(True, f"{wave} may be switched now.")
        hindered = next((one for one in self.frozen if _inside(one, now)), None)
        why = f"a freeze holds ({hindered.text})" if hindered else f"no change window is open ({self._listed()})"
        opens = self._next(now)
        if opens is None:
            then = f"none opens within {_HORIZON_DAYS - 1} days: correct the windows in the run's configuration."
        else:
            minutes = int((opens - now).total_seconds() // 60)
            at = opens.astimezone(self._zone()).strftime("%Y-%m-%d %H:%M %Z")
            then = f"it may be switched from {at} on, in {minutes // 60} h {minutes % 60} min."
        return Permission(False, f"{wave} waits: {why}; {then}", opens)

    def _open(self, now: datetime) -> bool:
        allowed = not self.allowed or any(_inside(one, now) for one in self.allowed)
        return allowed and not any(_inside(one, now) for one in self.frozen)

    def _next(self, now: datetime) -> datetime | None:
        edges = [begin for one in self.allowed for begin, _ in one.spans(now)]
        edges += [end for one in self.frozen for _, end in one.spans(now)]
        return min((one for one in edges if one > now and self._open(one)), default=None)

    def _listed(self) -> str:
        return "; ".join(one.text for one in self.allowed)

    def _zone(self) -> tzinfo:
        return (*self.allowed, *self.frozen)[0].zone


def _inside(window: Window, now: datetime) -> bool:
    return any(begin <= now < end for begin, end in window.spans(now))


def _split_zone(text: str) -> tuple[str, tzinfo]:
    parts = text.split()
    if parts and re.fullmatch(r"[A-Za-z]+(/[A-Za-z_+-]+\d*)*", parts[-1]) and len(parts) > 1:
        try:
            return " ".join(parts[:-1]), ZoneInfo(parts[-1])
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise _not_a_window(text, f"{parts[-1]!r} is no time zone") from error
    return " ".join(parts), UTC


def _interval(text: str, body: str, zone: tzinfo) -> tuple[datetime, datetime]:
    try:
        begin, end = (datetime.fromisoformat(part) for part in body.split("/"))
    except ValueError as error:
        raise _not_a_window(text, f"its times are not ISO 8601: {error}") from error
    begin, end = (one if one.tzinfo else one.replace(tzinfo=zone) for one in (begin, end))
    if begin >= end:
        raise _not_a_window(text, "it ends before it begins")
    return begin, end


def _days(text: str, given: str) -> frozenset[int]:
    if given.lower() == "daily":
        return frozenset(range(7))
    found: set[int] = set()
    for part in given.split(","):
        first, _, last = part.partition("-")
        names = [one.capitalize() for one in (first, last or first)]
        if any(one not in _DAYS for one in names):
            raise _not_a_window(text, f"{part!r} is no day of the week")
        begin, end = (_DAYS.index(one) for one in names)
        found |= {day % 7 for day in range(begin, end + 1 if end >= begin else end + 8)}
    return frozenset(found)


def _minutes(text: str, clock: str) -> int:
    hours, minutes = (int(part) for part in clock.split(":"))
    if hours > 24 or minutes > 59 or (hours == 24 and minutes):
        raise _not_a_window(text, f"{clock} is no time of a day")
    return hours * 60 + minutes


def _not_a_window(text: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"{text!r} is not a window, because {why}: write 'Mon-Fri 22:00-04:00 Europe/Berlin' or "
        "'2026-12-24T00:00/2027-01-02T06:00 Europe/Berlin'."
    )
