"""When a wave may be cut over: inside change windows, outside change freezes (pure).

Both have the same syntax, with a time zone at the end (UTC without one):
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
"""Contains every weekly window at least twice; a message names no window that opens later."""


@dataclass(frozen=True, slots=True)
class Window:
    """A span of time, once or every week.

    :param text: as it was written.
    :param once: begin and end, or None for a weekly window.
    :param days: weekdays on which it begins, 0 (Monday) to 6.
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
        """Read one window; `InvalidRequest` with an example when it is not valid."""
        body, zone = _split_zone(text)
        if "/" in body:
            return cls(text, zone, once=_interval(text, body, zone))
        parts = _WEEKLY.match(body)
        if not parts:
            raise _not_a_window(text, "it is neither a time of the week nor two times with '/' between them")
        begin, end = _minutes(text, parts["begin"]), _minutes(text, parts["end"])
        return cls(text, zone, days=_days(text, parts["days"]), begin=begin, end=end if end > begin else end + 24 * 60)

    def spans(self, around: datetime) -> Iterable[tuple[datetime, datetime]]:
        """Its begins and ends from the day before `around` until two weeks later, in order."""
        if self.once:
            yield self.once
            return
        first = around.astimezone(self.zone).date() - timedelta(days=1)
        for number in range(_HORIZON_DAYS + 1):
            day = first + timedelta(days=number)
            if day.weekday() in self.days:
                yield self._at(day, self.begin), self._at(day, self.end)

    def _at(self, day: date, minutes: int) -> datetime:
        # By local time: a window is an hour longer or shorter on a day when the clocks change.
        return datetime.combine(
            day + timedelta(days=minutes // 1440), time(minutes % 1440 // 60, minutes % 60), self.zone
        )


@dataclass(frozen=True, slots=True)
class Permission:
    """Whether the cut-over may start now.

    :param sentence: the reason if not.
    :param opens: when it may; None: not within two weeks.
    """

    granted: bool
    sentence: str
    opens: datetime | None = None


@dataclass(frozen=True, slots=True)
class Calendar:
    """Change windows and change freezes; without change windows every time outside the freezes is allowed."""

    windows: tuple[Window, ...] = ()
    freezes: tuple[Window, ...] = ()

    @classmethod
    def parse(cls, windows: Sequence[str] = (), freezes: Sequence[str] = ()) -> Calendar:
        """Read both lists; `InvalidRequest` for the first text that is not a window."""
        return cls(tuple(map(Window.parse, windows)), tuple(map(Window.parse, freezes)))

    def permission(self, now: datetime, wave: str) -> Permission:
        """Whether `wave` may be cut over at `now` (with a time zone)."""
        if now.tzinfo is None:
            raise InvalidRequest("The time to check has no time zone: add one.")
        if self._open(now):
            return Permission(True, f"{wave} may be cut over now.")
        freeze = next((window for window in self.freezes if _inside(window, now)), None)
        listed = "; ".join(window.text for window in self.windows)
        why = f"a freeze is active ({freeze.text})" if freeze else f"no change window is open ({listed})"
        opens = self._next(now)
        if opens is None:
            then = f"none opens within {_HORIZON_DAYS - 1} days: correct 'change_windows' (--change-windows)."
        else:
            minutes = int((opens - now).total_seconds() // 60)
            zone = (*self.windows, *self.freezes)[0].zone
            at = opens.astimezone(zone).strftime("%Y-%m-%d %H:%M %Z")
            then = f"it may be cut over from {at} on, in {minutes // 60} h {minutes % 60} min."
        return Permission(False, f"{wave} waits: {why}; {then}", opens)

    def _open(self, now: datetime) -> bool:
        allowed = not self.windows or any(_inside(window, now) for window in self.windows)
        return allowed and not any(_inside(freeze, now) for freeze in self.freezes)

    def _next(self, now: datetime) -> datetime | None:
        edges = [begin for window in self.windows for begin, _ in window.spans(now)]
        edges += [end for freeze in self.freezes for _, end in freeze.spans(now)]
        return min((edge for edge in edges if edge > now and self._open(edge)), default=None)


def _inside(window: Window, now: datetime) -> bool:
    return any(begin <= now < end for begin, end in window.spans(now))


def _split_zone(text: str) -> tuple[str, tzinfo]:
    parts = text.split()
    if parts and re.fullmatch(r"[A-Za-z]+(/[A-Za-z_+-]+\d*)*", parts[-1]) and len(parts) > 1:
        try:
            return " ".join(parts[:-1]), ZoneInfo(parts[-1])
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise _not_a_window(text, f"{parts[-1]!r} is not a time zone") from error
    return " ".join(parts), UTC


def _interval(text: str, body: str, zone: tzinfo) -> tuple[datetime, datetime]:
    try:
        begin, end = (datetime.fromisoformat(part) for part in body.split("/"))
    except ValueError as error:
        raise _not_a_window(text, f"its times are not ISO 8601: {error}") from error
    begin, end = (edge if edge.tzinfo else edge.replace(tzinfo=zone) for edge in (begin, end))
    if begin >= end:
        raise _not_a_window(text, "it ends before it begins")
    return begin, end


def _days(text: str, weekdays: str) -> frozenset[int]:
    if weekdays.lower() == "daily":
        return frozenset(range(7))
    days: set[int] = set()
    for part in weekdays.split(","):
        first, _, last = part.partition("-")
        names = [name.capitalize() for name in (first, last or first)]
        if any(name not in _DAYS for name in names):
            raise _not_a_window(text, f"{part!r} is not a day of the week")
        begin, end = (_DAYS.index(name) for name in names)
        days |= {day % 7 for day in range(begin, end + 1 if end >= begin else end + 8)}
    return frozenset(days)


def _minutes(text: str, clock: str) -> int:
    hours, minutes = (int(part) for part in clock.split(":"))
    if hours > 24 or minutes > 59 or (hours == 24 and minutes):
        raise _not_a_window(text, f"{clock} is not a time of day")
    return hours * 60 + minutes


def _not_a_window(text: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"{text!r} is not a window, because {why}: write 'Mon-Fri 22:00-04:00 Europe/Berlin' or "
        "'2026-12-24T00:00/2027-01-02T06:00 Europe/Berlin'."
    )
