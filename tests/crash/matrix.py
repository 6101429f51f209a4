"""Takes sessions on all nodes of a lab through points, and counts what became of them."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.crash import expiry, world
from tests.crash.control import Kind
from tests.crash.lane import FAILURES, Lane, Tried
from tests.crash.points import ON_CTL, PROGRAMS, VERBS, Counts, Point
from tests.crash.rig import Rig

OUTCOMES = ("alive", "restorable", "ended", "lost")


def count_calls(lane: Lane) -> Counts:
    """What a hibernation and a restore without a fault do, call by call."""
    counts: dict[tuple[str, str], list[Kind]] = {}
    programs = (*PROGRAMS, "s3") if lane.rig.remote else PROGRAMS
    lane.ready("hibernate")
    for verb in VERBS:
        lane.ready(verb)
        for program in programs:
            lane.control(program).arm()
        lane.clean(verb, by_command=True)
        lane.see_uploaded()
        for program in programs:
            control = lane.control(program)
            control.disarm()
            counts[program, verb] = [kind for kind, _ in control.calls()]
    return counts


class Matrix:
    def __init__(self, rig: Rig, report: Callable[[Tried], None], minutes: float = 0) -> None:
        """`minutes`: no new point is begun after so long; 0: all are tried."""
        self._rig = rig
        self._report = report
        self._deadline = time.monotonic() + minutes * 60 if minutes else float("inf")
        self._lock = threading.Lock()
        self.tried: list[Tried] = []
        self.lanes = [Lane(rig, name) for name in rig.nodes]

    def run(self, points: Iterable[Point]) -> None:
        """Those of one node on all nodes at once, then what concerns all nodes, then deletions.
        Where time is short each gets its part of it."""
        listed = list(points)
        old = [p for p in listed if p.verb in expiry.VERBS]
        shared = [
            p
            for p in listed
            if p.verb not in expiry.VERBS and (p.program in ON_CTL or p.event in world.FELT_BY_ALL)
        ]
        own = [p for p in listed if p not in {*shared, *old}]
        whole, began = self._deadline, time.monotonic()

        def until(done: int) -> None:
            if whole != float("inf"):
                self._deadline = began + (whole - began) * done / max(1, len(listed))

        until(len(own))
        self._side_by_side(own)
        until(len(own) + len(shared))
        self._one_after_the_other(self.lanes[0], shared)
        for lane in self.lanes:
            lane.start_over()
        until(len(listed))
        if old:
            lane = expiry.lane_of(self._rig)
            self._one_after_the_other(lane, old)
            lane.start_over()
            self._rig.set_retention("")

    def _side_by_side(self, points: list[Point]) -> None:
        with ThreadPoolExecutor(len(self.lanes)) as pool:
            under_way = [
                pool.submit(self._one_after_the_other, lane, points) for lane in self.lanes
            ]
        for one in under_way:
            one.result()  # a lane that ended early has told nobody else

    def _one_after_the_other(self, lane: Lane, left: list[Point]) -> None:
        while time.monotonic() < self._deadline:
            point = self._next(lane, left)
            if point is None:
                break
            tried = lane.try_point(point)
            with self._lock:
                self.tried.append(tried)
                self._report(tried)
        self._prove_last(lane)

    def _prove_last(self, lane: Lane) -> None:
        """What was hibernated is proved by the next restore; after the last point there is none."""
        mine = [tried for tried in self.tried if tried.node == lane.node]
        try:
            if mine and lane.state == "HIBERNATED":
                lane.clean("restore")
        except FAILURES as error:
            mine[-1].outcome, mine[-1].note = "lost", str(error)
            self._report(mine[-1])

    def _next(self, lane: Lane, left: list[Point]) -> Point | None:
        """The next one that fits the state in which the session is, for speed; else any."""
        wanted = "restore" if lane.state == "HIBERNATED" else "hibernate"
        with self._lock:
            for index, point in enumerate(left[:40]):
                if point.verb == wanted:
                    return left.pop(index)
            return left.pop(0) if left else None

    # -- what came of it ----------------------------------------------------------------------

    def lost(self) -> list[Tried]:
        return [tried for tried in self.tried if tried.outcome == "lost"]

    def table(self) -> str:
        """Points that were reached, by program, verb and fault."""
        rows: dict[tuple[str, str, str], Tally[str]] = {}
        for tried in self.tried:
            point = tried.point
            if tried.outcome:
                key = (point.program, point.verb, point.event or point.fault.name)
                rows.setdefault(key, Tally())[tried.outcome] += 1
        head = f"{'program':14} {'during':10} {'fault':34} {'points':>6}"
        lines = [head + "".join(f" {name:>10}" for name in OUTCOMES)]
        for key in sorted(rows):
            lines.append(_row(key, rows[key]))
        total: Tally[str] = sum(rows.values(), Tally())
        lines.append(_row(("all", "", ""), total))
        missed = sum(1 for tried in self.tried if not tried.outcome)
        if missed:
            lines.append(f"{missed} more were not reached: their call was not made this time")
        return "\n".join(lines)

    def write(self, path: Path) -> None:
        with path.open("w") as file:
            for tried in self.tried:
                file.write(json.dumps(_record(tried)) + "\n")


def _row(key: tuple[str, str, str], tally: Tally[str]) -> str:
    numbers = "".join(f" {tally[name]:>10}" for name in OUTCOMES)
    return f"{key[0]:14} {key[1]:10} {key[2]:34} {sum(tally.values()):>6}{numbers}"


def _record(tried: Tried) -> dict[str, object]:
    return {
        "point": str(tried.point),
        "call": tried.call,
        "outcome": tried.outcome,
        "seconds": round(tried.seconds, 1),
        "note": tried.note,
    }
