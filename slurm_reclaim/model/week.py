"""Times of the week as people write them: "Mon-Fri 08:00-18:00, Sat 10:00-14:00", "Fri 17:00"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone, tzinfo

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY = "|".join(DAYS)
_ENTRY = re.compile(
    rf"(?:(?P<days>(?:{_DAY})(?:-(?:{_DAY}))?)\s+)?"
    r"(?P<begin>\d\d:\d\d)(?:-(?P<end>\d\d:\d\d))?",
    re.IGNORECASE,
)
_MINUTES = 24 * 60


@dataclass(frozen=True, slots=True)
class Span:
    """Some days of the week (0 is Monday) from minute `begin` of the day until before `end`; where
    `end` is not later than `begin` it ends on the next day. A time alone: `end` is None."""

    days: frozenset[int]
    begin: int
    end: int | None

    def holds(self, at: datetime, closed: frozenset[date]) -> bool:
        """Whether the wall clock `at` lies in it; the days in `closed` have no spans."""
        minute, today = at.hour * 60 + at.minute, at.date()
        end = self.begin if self.end is None else self.end
        if end > self.begin:
            return self._begins(today, closed) and self.begin <= minute < end
        if minute >= self.begin:
            return self._begins(today, closed)
        return minute < end and self._begins(today - timedelta(days=1), closed)

    def _begins(self, day: date, closed: frozenset[date]) -> bool:
        return day.weekday() in self.days and day not in closed


def parse_hours(text: str) -> tuple[Span, ...]:
    """Raises ValueError with what is expected."""
    spans = tuple(_entry(part, spans=True) for part in text.split(",") if part.strip())
    if text.strip() and not spans:
        raise ValueError(_expected(spans=True))
    return spans


def parse_time(text: str) -> Span:
    """A time of the day, on some days of the week or on all. Raises ValueError."""
    return _entry(text, spans=False)


def parse_day(text: str) -> date:
    """Raises ValueError."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f'expected a date such as "2026-12-25", not {text!r}') from None


def parse_zone(text: str) -> tzinfo | None:
    """None for "", which stands for the local time zone. Raises ValueError."""
    if not text:
        return None
    # Late, as few settings name a zone: it brings more with it than the rest of this file.
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"unknown time zone {text!r}; they look like Europe/Berlin") from None


def local(now: float, zone: tzinfo | None) -> datetime:
    """The wall clock at `now` (Unix seconds) in `zone`, None for the local one."""
    at = datetime.fromtimestamp(now, timezone.utc)
    return at.astimezone(zone)


def last_time(times: tuple[Span, ...], now: float, zone: tzinfo | None) -> float:
    """Unix seconds at which one of the `times` was reached last, at most a day ago; else 0. A wall
    clock time that the clock's change skips is reached when the clock has moved on."""
    at = local(now, zone)
    best = 0.0
    for time in times:
        for day in (at.date(), at.date() - timedelta(days=1)):
            if day.weekday() not in time.days:
                continue
            wall = datetime(day.year, day.month, day.day, time.begin // 60, time.begin % 60)
            reached = (wall.replace(tzinfo=zone) if zone else wall.astimezone()).timestamp()
            if reached <= now:
                best = max(best, reached)
    return best


def _entry(text: str, *, spans: bool) -> Span:
    match = _ENTRY.fullmatch(text.strip())
    if match is None or (match["end"] is not None) is not spans:
        raise ValueError(f"{_expected(spans=spans)}, not {text.strip()!r}")
    begin, end = _minute(match["begin"]), match["end"]
    return Span(_days(match["days"]), begin % _MINUTES, None if end is None else _minute(end))


def _expected(*, spans: bool) -> str:
    return f"expected {'hours' if spans else 'a time'} such as " + (
        '"Mon-Fri 08:00-18:00"' if spans else '"19:00" or "Fri 17:00"'
    )


def _minute(text: str) -> int:
    hour, minute = int(text[:2]), int(text[3:])
    if hour * 60 + minute > _MINUTES or minute > 59:
        raise ValueError(f"{text!r} is no time of the day")
    return hour * 60 + minute


def _days(text: str | None) -> frozenset[int]:
    if text is None:
        return frozenset(range(7))
    known = [name.lower() for name in DAYS]
    first, _, last = text.lower().partition("-")
    begin, end = known.index(first), known.index(last or first)
    count = (end - begin) % 7 + 1
    return frozenset((begin + step) % 7 for step in range(count))
