"""Checkpoints that go, by an operator's word (`expire`) or by their number (`retention`), while an
agent or reclaimd fails at any call: only those go, and what is left of the session is whole."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.crash import world
from tests.crash.control import Action, Control, Kind
from tests.crash.lane import FAILURES, MENDED, STOPPED, Lane, Tried
from tests.crash.points import ON_CTL, Counts, Point
from tests.crash.rig import RETENTION, Rig
from tests.crash.session import Ticker, Violation

VERBS = ("expire", "retention")
PROGRAMS = ("reclaim-agent", "reclaimd")
# Of three checkpoints the oldest goes; all of them share packs.
MANY, LEFT = 3, 2
PATIENCE = 120.0  # seconds
POWER = "power failure of the node that deletes"
EVENTS = (
    POWER,
    "slurmctld dead for 4 s",
    "munged of ctl dead for 4 s",
    "reclaimd dead for 12 s",
    world.UPGRADED_CTL,
    world.UPGRADED_NODE,
)


class ExpiryLane(Lane):
    """The agent that deletes is the one with the fewest sessions: any."""

    # -- without a fault ----------------------------------------------------------------------

    def ready(self, verb: str) -> None:
        self._rules(MANY * 10)
        super().ready("hibernate")
        while len(self.stored()) < MANY:
            self.clean("hibernate")
            self.clean("restore")

    def clean(self, verb: str, *, by_command: bool = False) -> None:
        if verb not in VERBS:
            super().clean(verb, by_command=by_command)
            return
        going = min(self.stored())
        self._begin(verb, going)
        self._see_gone(verb, going)

    def stored(self) -> list[int]:
        """The checkpoints in the store, whoever says what."""
        return sorted(int(path.parent.name) for path in self._folder().glob("[0-9]*/manifest.json"))

    def _folder(self) -> Path:
        found = list((self.rig.shared / "reclaim").glob(f"*/{self.ticker.job}.*"))
        return found[0] if found else self.rig.shared / "none"

    def _leftovers(self) -> list[str]:
        return [path.name for path in self._folder().glob(".*")]

    def _rules(self, per_session: int, interval: str = "1h") -> None:
        text = RETENTION.format(per_session=per_session, interval=interval)
        self.rig.set_retention(text)

    def _begin(self, verb: str, going: int) -> None:
        if verb == "retention":
            self._rules(LEFT, "1s")
            return
        body = f'{{"checkpoint": "{self.ticker.job}/{going}"}}'
        self.rig.ask(f"POST /v1/checkpoints/expire {body}")

    def _see_gone(self, verb: str, going: int) -> None:
        """Asked again, as whoever asked would; what an interruption has left is for retention."""
        began = asked = time.monotonic()
        while going in self.stored() or self._leftovers():
            if time.monotonic() > began + PATIENCE:
                left = f"{self.stored()} and {self._leftovers()}"
                raise Violation(f"S7: {going} was to go; there are still {left}")
            if time.monotonic() > asked + 3:
                asked = time.monotonic()
                if going not in self.stored():
                    self._rules(LEFT, "1s")
                elif verb == "expire":
                    self._begin(verb, going)
            time.sleep(0.1)

    # -- with one -----------------------------------------------------------------------------

    def try_point(self, point: Point) -> Tried:
        began = time.monotonic()
        tried = Tried(point, "", node=self.node)
        try:
            self.ready(point.verb)
            there = self.stored()
            self._at_a_call(point, tried, there[0])
            self._see_gone(point.verb, there[0])
            self._see_whole(there[1:])
            self.confirm()
            for node in self.rig.nodes:
                world.check_node(self.rig, node)
            tried.outcome = "alive" if tried.call else ""
        except FAILURES as error:
            tried.outcome, tried.note = "lost", f"{error}\n{self._story()}"
            self.rig.disarm()
            world.boot_if_off(self.rig)
            self.start_over()
        tried.seconds = time.monotonic() - began
        return tried

    def controls(self, program: str) -> dict[str, Control]:
        """By the host on which it is."""
        hosts = ["ctl"] if program in ON_CTL else self.rig.nodes
        return {host: self.rig.control(program, host) for host in hosts}

    def _at_a_call(self, point: Point, tried: Tried, going: int) -> None:
        controls, fault = self.controls(point.program), point.fault
        for control in controls.values():
            control.arm(fault.action, point.number, fault.kinds, fault.length, fault.error)
        self._begin(point.verb, going)
        deadline = time.monotonic() + (MENDED if fault.lasts else 20.0)
        hit = ""
        while time.monotonic() < deadline and not (hit and not fault.lasts):
            if not hit:
                hit = next((host for host, c in controls.items() if c.hits), "")
                tried.call = controls[hit].call(point.number)[1:] if hit else ""
            if not hit and going not in self.stored() and not self._leftovers():
                break
            time.sleep(0.02)
        try:
            if hit and fault.action is Action.STOP:
                self._happen(point, hit)
        finally:
            for host, control in controls.items():
                control.disarm()
                if control.hits and fault.action is Action.STOP:
                    # Also an agent that had nothing to do with it, and has come as far.
                    self._let_go(host, control)

    def _happen(self, point: Point, host: str) -> None:
        if not point.event:
            time.sleep(STOPPED)
        elif point.event == POWER:
            # What runs on it goes back to its last checkpoint.
            self.ticker.floor = self.ticker.saved if host == self.node else self.ticker.floor
            world.EVENTS["power failure of the node"](self.rig, Ticker(self.rig, host))
        elif point.event == world.UPGRADED_NODE:
            # The one that deletes, wherever the session is.
            world.EVENTS[point.event](self.rig, Ticker(self.rig, host))
        else:
            world.EVENTS[point.event](self.rig, self.ticker)

    def _let_go(self, host: str, control: Control) -> None:
        if self.rig.node(host).init():
            self.rig.sh(host, f"kill -CONT {control.pid}", check=False)

    # -- what must be true --------------------------------------------------------------------

    def _see_whole(self, wanted: list[int]) -> None:
        """All that was not to go is there, to its last byte."""
        if (found := self.stored()) != wanted:
            raise Violation(f"S6: there are checkpoints {found}, and there were to be {wanted}")
        for number in wanted:
            if differs := self._verified(number):
                raise Violation(f"S6: checkpoint {number} has lost something: {differs}")

    def _verified(self, number: int) -> Any:
        body = f'{{"checkpoint": "{self.ticker.job}/{number}"}}'
        deadline = time.monotonic() + PATIENCE
        while True:
            said = self.rig.ask(f"POST /v1/checkpoints/verify {body}")
            while said.get("done") is False:
                said = self.rig.ask(f"GET /v1/checkpoints/errands/{said['number']}?wait=2")
            if said.get("done") and not said.get("error"):
                return (said.get("answer") or {}).get("differs")
            if time.monotonic() > deadline:
                return said.get("error") or said
            time.sleep(0.5)


def count_calls(lane: ExpiryLane) -> Counts:
    """What one deletion makes, call by call: of the agent that did it."""
    counts: dict[tuple[str, str], list[Kind]] = {}
    for verb in VERBS:
        lane.ready(verb)
        controls = {program: lane.controls(program).values() for program in PROGRAMS}
        for control in (c for some in controls.values() for c in some):
            control.arm()
        lane.clean(verb)
        for program, some in controls.items():
            for control in some:
                control.disarm()
            calls = [[kind for kind, _ in control.calls()] for control in some]
            counts[program, verb] = max(calls, key=lambda kinds: _of_files(kinds))
    return counts


def _of_files(kinds: Iterable[Kind]) -> int:
    return sum(1 for kind in kinds if kind & Kind.FILE)


def lane_of(rig: Rig) -> ExpiryLane:
    return ExpiryLane(rig, rig.nodes[0])
