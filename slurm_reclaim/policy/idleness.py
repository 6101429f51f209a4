"""The idle clock: samples folded into evidence.

It runs while every signal is known and below its floor, is set back by any use, stands still while
something is unknown, and starts anew where that lasts for longer than the allowed gap (S4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurm_reclaim.model.evidence import Evidence, Recent
from slurm_reclaim.model.sample import Sample, Signal

# Signals that are judged by their average over a minute: a page that is loaded anew or a task that
# wakes once a minute is housekeeping, work goes on.
AVERAGED = (Signal.CPU.value, Signal.IO.value, Signal.NETWORK.value)
AVERAGE_OVER = 60.0  # seconds
# Samples that follow each other may leave this much between them: timers are late, clocks drift.
SLACK = 2.0  # seconds


@dataclass(frozen=True, slots=True)
class Yardstick:
    """`floors` by signal, in its unit: use begins there. `required`: signals that must be known;
    `optional`: signals that may be unknown; `gap` seconds."""

    floors: Mapping[str, float]
    required: frozenset[str]
    optional: frozenset[str]
    gap: float


def begin(at: float) -> Evidence:
    """Nothing is known yet; measuring begins."""
    return Evidence(since=at, until=at)


def fold(before: Evidence, sample: Sample, by: Yardstick) -> Evidence:
    """The evidence after one more sample. One that is older than what is known changes nothing."""
    if sample.at <= before.until:
        return before
    readings = sample.readings
    recent = _recent(before.recent, sample)
    averages = _averages(recent)
    use_at, use_by, use_what = before.active_at, before.active_by, before.active_what
    used: dict[str, float] | None = None
    blind: list[str] = []
    active = False
    for name, reading in readings.items():
        value = averages.get(name) if name in AVERAGED else reading.value
        if reading.value is None:
            if name not in by.optional:
                blind.append(name)
            value = None
        at = reading.last if reading.last <= sample.at else 0.0
        if value is not None and value > 0.0 and value >= by.floors.get(name, 1.0):
            # What shows a time of its own was used then, what shows a rate was used until now.
            if at <= 0.0 or name != Signal.TERMINAL.value:
                at = sample.at
            active = True
        if at > before.used.get(name, before.since):
            used = dict(before.used) if used is None else used
            used[name] = at
        if at > use_at and at > before.since:
            use_at, use_by, use_what = at, name, reading.what
    blind += [name for name in by.required if name not in readings and name not in by.optional]
    hole = max(0.0, sample.began - before.until)
    seconds = min(sample.seconds, sample.at - before.until)
    quiet, unknown = before.quiet, before.unknown
    if hole > SLACK:
        unknown += hole
    if blind:
        unknown += seconds
    if unknown > by.gap:
        quiet = 0.0
    if not blind:
        quiet += seconds
        unknown = 0.0
    if active or use_at > before.active_at:
        quiet = min(quiet, max(0.0, sample.at - use_at))
    return Evidence(
        since=before.since,
        until=sample.at,
        active_at=use_at,
        active_by=use_by,
        active_what=use_what,
        quiet=quiet,
        unknown=unknown,
        blind=tuple(blind),
        readings=readings,
        averages=averages,
        used=before.used if used is None else used,
        recent=recent,
    )


def _recent(before: tuple[Recent, ...], sample: Sample) -> tuple[Recent, ...]:
    limit = sample.at - AVERAGE_OVER
    kept = tuple(row for row in before if row[0] > limit)
    readings = (sample.readings.get(name) for name in AVERAGED)
    values = tuple(None if reading is None else reading.value for reading in readings)
    return (*kept, (sample.at, sample.seconds, values))


def _averages(recent: tuple[Recent, ...]) -> dict[str, float]:
    """Over at least a minute: what was not measured before the first sample counts as nothing."""
    found = {}
    for column, name in enumerate(AVERAGED):
        total = seconds = 0.0
        for _, length, values in recent:
            value = values[column]
            if value is not None:
                total += value * length
                seconds += length
        if seconds:
            found[name] = total / max(seconds, AVERAGE_OVER)
    return found
