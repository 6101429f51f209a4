"""The idle clock: samples folded into evidence.

It runs while every signal is known and below its floor, is set back by any use, stands still while
something is unknown, and starts anew where that lasts for longer than the allowed gap (S4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from slurm_reclaim.model.evidence import Evidence, Recent
from slurm_reclaim.model.sample import Sample, Signal

# Signals that are judged by their average over a minute: a page that is loaded anew or a task that
# wakes once a minute is housekeeping, work goes on.
_CPU, _IO, _NETWORK = AVERAGED = (Signal.CPU.value, Signal.IO.value, Signal.NETWORK.value)
AVERAGE_OVER = 60.0  # seconds
_TERMINAL = Signal.TERMINAL.value
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


def idle_span(evidence: Evidence) -> float:
    """A name for this span of idleness: when it began at the earliest."""
    return max(evidence.active_at, evidence.since)


def fold(before: Evidence, sample: Sample, by: Yardstick) -> Evidence:
    """The evidence after one more sample. Of one that is older than what is known only uses
    count."""
    if sample.at <= before.until:
        return _late(before, sample, by.floors)
    readings, now, since = sample.readings, sample.at, before.since
    recent = _recent(before.recent, sample)
    averages = _averages(recent)
    use_at, use_by, use_what = before.active_at, before.active_by, before.active_what
    floors = by.floors
    used: dict[str, float] | None = None
    blind: list[str] = []
    active = False
    # This loop is most of what the controller does: what most readings say, nothing, comes first.
    for name, reading in readings.items():
        value, at = reading.value, reading.last
        if at > now:
            at = 0.0
        if value is None:
            if name not in by.optional:
                blind.append(name)
        else:
            if name in averages:
                value = averages[name]
            if value > 0.0 and value >= floors.get(name, 1.0):
                # What shows a time of its own was used then, what shows a rate until now.
                if at <= 0.0 or name != _TERMINAL:
                    at = now
                active = True
        if at > since:
            if at > before.used.get(name, since):
                used = dict(before.used) if used is None else used
                used[name] = at
            if at > use_at:
                use_at, use_by, use_what = at, name, reading.what
    if not by.required <= readings.keys():
        blind += sorted(by.required - readings.keys() - by.optional)
    quiet, unknown = _clock(before, sample, by.gap, bool(blind))
    if active or use_at > before.active_at or use_at > before.until:
        quiet = min(quiet, max(0.0, now - use_at))
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


def kept(before: Evidence, at: float, what: str) -> Evidence:
    """Its owner's word is a use like any other: from `at` on the clock begins anew."""
    return replace(before, active_at=max(at, before.active_at), active_by="keep",
                   active_what=what, quiet=0.0)  # fmt: skip


def _late(before: Evidence, sample: Sample, floors: Mapping[str, float]) -> Evidence:
    """A report that was long on its way makes its node look behind, and its samples later than they
    were; those of the next report then overlap with them. A repeated one says nothing new."""
    use_at, use_by, use_what = before.active_at, before.active_by, before.active_what
    for name, reading in sample.readings.items():
        value, at = reading.value or 0.0, reading.last
        if at > sample.at:
            at = 0.0
        if name in AVERAGED:
            value *= min(1.0, sample.seconds / AVERAGE_OVER)
        if value > 0.0 and value >= floors.get(name, 1.0) and (at <= 0.0 or name != _TERMINAL):
            at = sample.at
        if at > before.since and at > use_at:
            use_at, use_by, use_what = at, name, reading.what
    if use_at <= before.active_at:
        return before
    return replace(
        before,
        active_at=use_at,
        active_by=use_by,
        active_what=use_what,
        quiet=min(before.quiet, before.until - use_at),
        used={**before.used, use_by: max(use_at, before.used.get(use_by, 0.0))},
    )


def _clock(before: Evidence, sample: Sample, gap: float, blind: bool) -> tuple[float, float]:
    """(quiet, unknown) where nothing was used: it runs, stands still, or starts anew."""
    hole = sample.began - before.until
    seconds = min(sample.seconds, sample.at - before.until)
    quiet, unknown = before.quiet, before.unknown
    if hole > SLACK:
        unknown += hole
    if blind:
        unknown += seconds
    if unknown > gap:
        quiet = 0.0
    return (quiet, unknown) if blind else (quiet + seconds, 0.0)


def _recent(before: tuple[Recent, ...], sample: Sample) -> tuple[Recent, ...]:
    readings, limit, old = sample.readings, sample.at - AVERAGE_OVER, 0
    while old < len(before) and before[old][0] <= limit:
        old += 1
    cpu, io, network = readings.get(_CPU), readings.get(_IO), readings.get(_NETWORK)
    values = (
        None if cpu is None else cpu.value,
        None if io is None else io.value,
        None if network is None else network.value,
    )
    return (*before[old:], (sample.at, sample.seconds, values))


def _averages(recent: tuple[Recent, ...]) -> dict[str, float]:
    """Over at least a minute: what was not measured before the first sample counts as nothing."""
    cpu = io = network = cpu_known = io_known = network_known = 0.0
    for _, length, (a, b, c) in recent:
        if a is not None:
            cpu += a * length
            cpu_known += length
        if b is not None:
            io += b * length
            io_known += length
        if c is not None:
            network += c * length
            network_known += length
    found = {}
    if cpu_known:
        found[_CPU] = cpu / (cpu_known if cpu_known > AVERAGE_OVER else AVERAGE_OVER)
    if io_known:
        found[_IO] = io / (io_known if io_known > AVERAGE_OVER else AVERAGE_OVER)
    if network_known:
        found[_NETWORK] = network / (
            network_known if network_known > AVERAGE_OVER else AVERAGE_OVER
        )
    return found
