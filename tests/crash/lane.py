"""One session on one node that is taken through points, one after the other."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.crash import clocks, remote, world
from tests.crash.control import Action, Control
from tests.crash.points import ON_CTL, Point
from tests.crash.rig import LabError, Rig
from tests.crash.session import RESTING, Ticker, Violation

BEFORE = {"hibernate": "ACTIVE", "restore": "HIBERNATED"}
AFTER = {"hibernate": "HIBERNATED", "restore": "ACTIVE"}
STOPPED = 2.0  # seconds for which a stopped program stands still
HEARD_OF = 15.0  # seconds in which an agent is heard of again
MENDED = 6.0  # seconds after which a fault that lasts is over
# The session is not what it has to be, or the harness could not find out: someone has to look.
FAILURES = (Violation, LabError, OSError, subprocess.SubprocessError)  # TimeoutError is an OSError


# After a step of clocks what was written down may lie in the time to come.
SOON = frozenset(clocks.STEPS)


def since(kinds: Sequence[str], first: str) -> Sequence[str]:
    """From the last `first` on."""
    return kinds[len(kinds) - 1 - kinds[::-1].index(first) :] if first in kinds else kinds


@dataclass
class Tried:
    """`outcome`: alive, restorable, ended (by the event itself), lost, or "" where the call was
    never made."""

    point: Point
    outcome: str
    call: str = ""
    note: str = ""
    seconds: float = 0.0
    node: str = ""


class Lane:
    def __init__(self, rig: Rig, node: str) -> None:
        self.rig, self.node = rig, node
        self.ticker = Ticker(rig, node)
        self.state = ""
        self._asking: threading.Thread | None = None

    def control(self, program: str) -> Control:
        return self.rig.control(program, "ctl" if program in ON_CTL else self.node)

    # -- without a fault ----------------------------------------------------------------------

    def ready(self, verb: str) -> None:
        """Bring the session to where `verb` can be asked; it has a checkpoint, an old one at
        least."""
        if not self.state:
            self.ticker.start()
            self.state = "ACTIVE"
            self.clean("hibernate")
        if self.state != BEFORE[verb]:
            self.clean("restore" if self.state == "HIBERNATED" else "hibernate")
        if verb == "restore":
            self._forget_copies()

    def clean(self, verb: str, *, by_command: bool = False) -> None:
        """`verb` without a fault. Whatever came before: this must work, at once or when agents
        and nodes are back."""
        ask = self.ticker.command if by_command else self.ticker.request
        deadline = time.monotonic() + 120
        if self.state == "HIBERNATED":
            self._forget_copies()
        while True:
            why = ask(verb)
            self.state = self.ticker.settled()
            if self.state == AFTER[verb]:
                break
            if self.state in ("FAILED", "ENDED") or time.monotonic() > deadline:
                raise Violation(f"S1: no {verb} any more: {self.state}, {why or self._reason()}")
            time.sleep(0.5)
        self.confirm()

    def see_uploaded(self) -> None:
        """Raises Violation where the object store does not get all of it."""
        if self.rig.remote and not remote.see_uploaded(self.rig, self.node, self.ticker.job):
            left = remote.marks(self.rig, self.node, self.ticker.job)
            raise Violation(f"S1: never in the object store: {left}")

    def _forget_copies(self) -> None:
        """So that a restore reads what is in the object store."""
        if self.rig.remote:
            self.see_uploaded()
            remote.forget_copies(self.rig, self.node, self.ticker.job)

    def _uploads(self, state: str) -> bool:
        """Whether what was committed is still on its way."""
        if self.rig.remote != "after" or state != "HIBERNATED":
            return False
        return not remote.marks(self.rig, self.node, self.ticker.job) <= remote.IN_STORE

    def confirm(self) -> None:
        """See that the session is what the controller takes it for."""
        self._come_to_rest()
        self._check()

    def _come_to_rest(self) -> None:
        """What has just been killed may be ACTIVE for a moment more."""
        self.state = self.ticker.agreed(self.ticker.settled())
        if self.state == "ACTIVE" and not self.ticker.goes_on():
            self.state = self.ticker.settled()

    def _check(self) -> None:
        if self.state == "ACTIVE":
            self.ticker.check_running()
        elif self.state == "HIBERNATED":
            self.ticker.check_held()
        else:
            raise Violation(f"S1: {self.state or 'unknown'}: {self._reason()}")

    def _reason(self) -> str:
        shown = self.ticker.shown()
        return str(shown.get("reason", shown))

    # -- with one -----------------------------------------------------------------------------

    def try_point(self, point: Point) -> Tried:
        began = time.monotonic()
        tried = Tried(point, "", node=self.node)
        try:
            self.ready(point.verb)
            self._provoke(point, tried)
            if tried.outcome == "ended":
                self.ticker.gone()
                world.check_node(self.rig, self.node)
                self.start_over()
            else:
                self._judge(point, tried)
        except FAILURES as error:
            tried.outcome, tried.note = "lost", str(error)
            tried.note += "\n" + self._story()
            self.rig.disarm()
            world.boot_if_off(self.rig)
            world.put_right(self.rig, self.ticker, point.event)
            self.start_over()
        tried.seconds = time.monotonic() - began
        return tried

    def _provoke(self, point: Point, tried: Tried) -> None:
        control, fault = self.control(point.program), point.fault
        control.arm(fault.action, point.number, fault.kinds, fault.length, fault.error)
        try:
            by_command = point.program == "reclaim"
            ask = self.ticker.command if by_command else self.ticker.request
            refused = self._ask(point, control, ask)
            self._act(point, control, tried, refused)
        finally:
            tried.call = control.call(point.number)[1:] if control.hits else ""
            control.disarm()

    def _ask(self, point: Point, control: Control, ask: Callable[[str], str]) -> str:
        """Again where it is refused for what came before: an agent that has just died."""
        if point.program == "reclaim" and point.fault.action is Action.STOP:
            return self._ask_beside(point, control, ask)
        deadline = time.monotonic() + HEARD_OF
        while True:
            refused = ask(point.verb)
            if not refused or point.program == "reclaim" or control.hits:
                return refused
            if time.monotonic() > deadline or self.ticker.state() != BEFORE[point.verb]:
                return refused
            time.sleep(0.5)

    def _ask_beside(self, point: Point, control: Control, ask: Callable[[str], str]) -> str:
        """A command that is going to be held has asked, or not, and answers when it is let go."""
        self._asking = threading.Thread(target=ask, args=(point.verb,), daemon=True)
        self._asking.start()
        while self._asking.is_alive() and not control.hits:
            time.sleep(0.02)
        return "it was not waited for"

    def _act(self, point: Point, control: Control, tried: Tried, refused: str) -> None:
        """Until it has come to rest, or for as long as a fault lasts."""
        deadline = time.monotonic() + (MENDED if point.fault.lasts else 20.0)
        moved = False
        while time.monotonic() < deadline:
            if control.hits and point.fault.action is Action.STOP:
                try:
                    tried.outcome = self._happen(point)
                finally:
                    self._go_on(point, control)
                return
            state = self.ticker.state()
            moved = moved or state not in (BEFORE[point.verb], "?")
            if state in RESTING and (moved or refused) and not self._uploads(state):
                return
            if control.hits and not point.fault.lasts and point.fault.action is not Action.STOP:
                return
            time.sleep(0.05)

    def _happen(self, point: Point) -> str:
        """While the program stands; "ended" where that ends the session by itself."""
        if point.event:
            return world.EVENTS[point.event](self.rig, self.ticker)
        time.sleep(STOPPED)
        return ""

    def _go_on(self, point: Point, control: Control) -> None:
        where = "ctl" if point.program in ON_CTL else self.node
        control.disarm()
        if not self.rig.node(where).init():
            return
        # CRIU knows its own number in the session's namespace only.
        who = "pkill -CONT -x criu" if point.program == "criu" else f"kill -CONT {control.pid}"
        self.rig.sh(where, who, check=False)
        if self._asking:
            self._asking.join(60)
            self._asking = None

    def _judge(self, point: Point, tried: Tried) -> None:
        self._come_to_rest()
        if self.state == "ENDED" and self._had_to_end(point):
            tried.outcome = "ended"
            self.start_over()
            return
        self._check()
        world.put_right(self.rig, self.ticker, point.event)
        world.check_node(self.rig, self.node)
        if not tried.call:
            return
        tried.outcome = "alive" if self.state == "ACTIVE" else "restorable"
        if self.state == "HIBERNATED" and (point.verb == "restore" or point.event in SOON):
            self.clean("restore")  # the proof; what was hibernated is proved by the next restore

    def _had_to_end(self, point: Point) -> bool:
        """Its first process was killed, or its time was over, and it was the session then: there
        was no checkpoint of this run, or it had been restored."""
        kinds = [event["kind"] for event in self._events()]
        if point.event == world.TIME_LIMIT and point.verb == "restore":
            return bool({"restore-succeeded", "session-restored"} & set(since(kinds, "released")))
        if point.event not in world.ENDS or point.verb != "hibernate":
            return False
        return "checkpoint-committed" not in since(kinds, "hibernate-asked")

    def start_over(self) -> None:
        self.ticker.end()
        self.state = ""

    def _story(self) -> str:
        """The last events of the session, for whoever looks into it."""
        told = self._events()[-12:]
        return "\n".join(f"  {e['at']:.2f} {e['kind']}: {e['reason']}" for e in told)

    def _events(self) -> list[dict]:
        said = self.rig.ask(f"GET /v1/events?job={self.ticker.job}")
        return said if isinstance(said, list) else []
