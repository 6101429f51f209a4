"""Samples of this node's sessions: taken every interval, kept until the controller has them.

Meters look at what users own and at drivers that hang: none of them may stop the agent. A pass
has a limit; what has not answered by then is unknown, and is left alone until it answers.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from slurm_reclaim.config.schema import Config
from slurm_reclaim.daemon import node_meters
from slurm_reclaim.daemon.node_workers import Turn, Workers
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living
from slurm_reclaim.model.sample import GpuHeld, Reading, Sample, Signal, merge
from slurm_reclaim.ports import Meter

log = logging.getLogger(__name__)

MOST_KEPT = 32  # samples of one session that wait for the controller
WORKERS = 4
MOST_HUNG = 16  # threads that wait for meters which hang; with more of them nothing is measured
LONGEST_PASS = 5.0  # seconds
SHORTEST = 0.5  # seconds between two readings: less says nothing
# Two samples adjoin where the clock says so, too: a machine may sleep.
_ADJOIN = 1.0  # seconds
_SET = 0.5  # seconds by which a clock is set and not merely kept right
_MOST_TEXT = 300  # characters of Reading.what
_SIGNALS = frozenset(signal.value for signal in Signal)
_TERMINAL = Signal.TERMINAL.value

Key = tuple[int, int, int]


@dataclass(slots=True)
class Gauge:
    """A meter and what it said last. `answered`: the pass whose question that was; `names` its
    signals, where it left them out those it may speak of (the meter's `signals`); `busy` while a
    thread is in it; `began` monotonic seconds of its last reading."""

    meter: Meter
    busy: bool = False
    failed: bool = False
    answered: int = -1
    began: float = 0.0
    names: tuple[str, ...] = ()
    readings: Mapping[str, Reading] = field(default_factory=dict)
    held: tuple[GpuHeld, ...] = ()


class Run:
    """The samples of one session that follow each other; begun anew after a dump or a restore,
    since counters begin anew with the processes."""

    def __init__(self, session: NodeSession, meters: list[Meter]) -> None:
        self.job_id = session.job_id
        self.gauges = [Gauge(meter) for meter in meters]
        self.at = 0.0  # monotonic seconds of the last sample; 0: none yet
        self.over = False


@dataclass(slots=True)
class Kept:
    """`sent`: in a report that was not answered yet; `waiting`: newer ones; `last_input` Unix
    seconds of the last terminal input by the newest sample, 0 unknown. `clock`: by how much the
    wall clock was ahead of the time since boot when these were given."""

    clock: float
    sent: list[Sample] = field(default_factory=list)
    waiting: list[Sample] = field(default_factory=list)
    gpus: tuple[GpuHeld, ...] = ()
    last_input: float = 0.0

    def restamp(self) -> None:
        """A report gives one time for all that is in it: after the wall clock was set, what was
        measured before goes by the new one."""
        clock = _wall_clock()
        by = clock - self.clock
        if abs(by) <= _SET:
            return
        self.clock = clock
        self.sent = [_later(sample, by) for sample in self.sent]
        self.waiting = [_later(sample, by) for sample in self.waiting]
        self.last_input += by if self.last_input else 0.0


@dataclass(frozen=True, slots=True)
class Told:
    """What a report says of one session; see Kept. `measured`: it is being measured now."""

    samples: tuple[Sample, ...] = ()
    gpus: tuple[GpuHeld, ...] = ()
    last_input: float = 0.0
    measured: bool = False


class NodeSamples:
    """`take` is for one worker thread, `of` and `taken` for another, `settle` for any."""

    def __init__(
        self,
        config: Callable[[], Config],
        meters: Callable[[NodeSession, Config], list[Meter]] = node_meters.meters,
        limit: float = LONGEST_PASS,
    ) -> None:
        self._config = config
        self._meters = meters
        self._limit = limit
        self._lock = threading.Lock()
        self._runs: dict[Key, Run] = {}
        self._kept: dict[Key, Kept] = {}
        self._pass = 0
        self._hung = 0
        self._workers = Workers()

    # -- taking -------------------------------------------------------------------------------

    def take(self, sessions: Collection[NodeSession], busy: Collection[int]) -> None:
        """One sample of each session that runs and is not being worked on (`busy` job ids).
        Returns after the limit at the latest."""
        runs = self._follow(sessions, busy)
        self._pass += 1
        turns = self._measured(deque(runs.values()))
        with self._lock:
            for turn in turns:
                turn.late = not turn.done
                self._hung += turn.late
            for key, run in runs.items():
                self._collect(key, run)

    def _follow(self, sessions: Collection[NodeSession], busy: Collection[int]) -> dict[Key, Run]:
        """The runs to be measured: those of before, less those that are over, and new ones."""
        living = {_key(s): s for s in sessions}
        running = (k for k, s in living.items() if s.living is Living.RUNNING and k[0] not in busy)
        made: dict[Key, Run] = {}
        for key in set(running) - self._runs.keys():
            try:
                made[key] = Run(living[key], self._meters(living[key], self._config()))
            except Exception:
                log.exception("session job=%s can't be measured", key[0])
        with self._lock:
            self._runs.update(made)
            for key in list(self._runs):
                session = living.get(key)
                # asked under the lock: see `settle`
                if session is None or session.living is not Living.RUNNING or key[0] in busy:
                    self._runs.pop(key).over = True
            for key in self._kept.keys() - living.keys():
                del self._kept[key]
            return dict(self._runs)

    def _measured(self, work: deque[Run]) -> list[Turn]:
        """What the threads did in this pass, those that are late among them. One does it as a rule,
        and the next helps out where something keeps it waiting."""
        if self._hung >= MOST_HUNG:
            log.error("%d meters do not answer; nothing is measured until one does", self._hung)
            return []
        deadline = time.monotonic() + self._limit
        turns: list[Turn] = []
        while work and time.monotonic() < deadline:
            if len(turns) < WORKERS:
                turns.append(Turn())
                self._workers.give(turns[-1], partial(self._take_turn, turns[-1], work))
            turns[-1].over.wait(self._limit / 10)
        for turn in turns:
            turn.over.wait(max(0.0, deadline - time.monotonic()))
        return turns

    def _take_turn(self, turn: Turn, work: deque[Run]) -> None:
        """Measures sessions until none is left; who is late stops after the meter it is in."""
        number = self._pass
        try:
            while not turn.late:
                try:
                    run = work.popleft()
                except IndexError:
                    break
                self._measure(number, run, turn)
        finally:
            with self._lock:
                turn.done = True
                self._hung -= turn.late
            turn.over.set()

    def _measure(self, number: int, run: Run, turn: Turn) -> None:
        for gauge in run.gauges:
            now = time.monotonic()
            with self._lock:
                if run.over or turn.late or gauge.busy:
                    continue
                gauge.busy = True
            readings: Mapping[str, Reading] | None = None
            held: tuple[GpuHeld, ...] = ()
            try:
                readings = _sane(gauge.meter.read(now - gauge.began if gauge.began else 0.0))
                held = tuple(gauge.meter.held())
            except Exception:
                if not gauge.failed:
                    log.exception("job=%s: %s", run.job_id, type(gauge.meter).__name__)
            gauge.failed = readings is None
            with self._lock:
                gauge.busy = False
                if readings is not None:
                    gauge.began, gauge.answered = now, number
                    gauge.readings, gauge.held = readings, held
                    gauge.names = tuple(readings) or getattr(gauge.meter, "signals", ())

    def _collect(self, key: Key, run: Run) -> None:
        """The sample of this pass. A session of which one meter has said nothing yet, so that
        it is not even known which signals it has, gets none."""
        if any(gauge.answered < 0 for gauge in run.gauges):
            return
        # It is of the moment when the first meter began: what is used while others are still
        # looking must bear a later time than the sample, or nobody would look for it (S5).
        began = [gauge.began for gauge in run.gauges if gauge.answered == self._pass]
        now, first = min(began, default=time.monotonic()), not run.at
        seconds = now - run.at
        if not first and seconds < SHORTEST:
            return
        run.at = now
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = Kept(_wall_clock())
        kept.restamp()
        kept.gpus = tuple([gpu for gauge in run.gauges for gpu in gauge.held])
        if first:
            return
        readings: dict[str, Reading] = {}
        for gauge in run.gauges:
            for name, reading in self._said(gauge).items():
                if name not in readings or reading.value is None:
                    readings[name] = reading
        terminal = readings.get(_TERMINAL)
        kept.last_input = terminal.last if terminal is not None else 0.0
        kept.waiting.append(Sample(time.time() - (time.monotonic() - now), seconds, readings))
        log.debug("job=%s %s", run.job_id, readings)
        kept.waiting[:] = squeezed(kept.waiting, MOST_KEPT)

    def _said(self, gauge: Gauge) -> Mapping[str, Reading]:
        if gauge.answered == self._pass:
            return gauge.readings
        what = f"{type(gauge.meter).__name__} does not answer"
        return {name: Reading(None, what=what) for name in gauge.names}

    def settle(self, job_id: int, patience: float = LONGEST_PASS) -> None:
        """End the run of a session that is being worked on (its job id is among the `busy`) and
        wait until nothing looks at it any more, at most `patience` seconds: what we ask of a
        session must not pass for what its owner does."""
        deadline = time.monotonic() + patience
        with self._lock:
            runs = [run for run in self._runs.values() if run.job_id == job_id]
            for run in runs:
                run.over = True
        while time.monotonic() < deadline:
            with self._lock:
                if not any(gauge.busy for run in runs for gauge in run.gauges):
                    break
            time.sleep(0.02)
        with self._lock:
            self._runs = {k: run for k, run in self._runs.items() if not run.over}

    # -- giving -------------------------------------------------------------------------------

    def of(self, session: NodeSession) -> Told:
        """All samples of the session that no answered report had; they count as sent now."""
        with self._lock:
            kept, measured = self._kept.get(_key(session)), _key(session) in self._runs
            if kept is None:
                return Told(measured=measured)
            kept.restamp()
            kept.sent, kept.waiting = squeezed([*kept.sent, *kept.waiting], MOST_KEPT), []
            return Told(tuple(kept.sent), kept.gpus, kept.last_input, measured)

    def taken(self, jobs: Collection[int]) -> None:
        """The controller has answered the last report, in which these jobs' sessions were: what
        was sent is its own now."""
        with self._lock:
            for key, kept in self._kept.items():
                if key[0] in jobs:
                    kept.sent = []


def _key(session: NodeSession) -> Key:
    return session.job_id, session.init, session.init_start


def _wall_clock() -> float:
    """How far the wall clock is ahead of the time since boot, which nobody can set."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _later(sample: Sample, by: float) -> Sample:
    readings = {
        name: replace(reading, last=reading.last + by) if reading.last else reading
        for name, reading in sample.readings.items()
    }
    return Sample(sample.at + by, sample.seconds, readings)


def _sane(readings: Mapping[str, Reading]) -> dict[str, Reading]:
    """What no meter should say is unknown: numbers that are none, signals of no name."""
    found = {}
    for name, reading in readings.items():
        value = reading.value
        if value is not None and not 0 <= value < math.inf:
            reading = replace(reading, value=None, what=f"absurd: {value}")
        elif len(reading.what) > _MOST_TEXT:
            reading = replace(reading, what=reading.what[:_MOST_TEXT])
        if name in _SIGNALS:
            found[name] = reading
    return found


def squeezed(samples: list[Sample], most: int) -> list[Sample]:
    """At most `most` samples of the same time: neighbours are merged, pair by pair, where nothing
    lies between them. Where that is not enough the oldest are lost."""
    if len(samples) <= most:
        return samples
    merged: list[Sample] = []
    rest = deque(samples)
    while rest:
        sample = rest.popleft()
        if rest and abs(rest[0].began - sample.at) <= _ADJOIN:
            sample = merge((sample, rest.popleft()))
        merged.append(sample)
    return merged[-most:]
