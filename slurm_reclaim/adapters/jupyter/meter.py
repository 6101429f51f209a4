"""Fulfils ports.Meter for the signal `jupyter`: kernels that are busy, and their last execution.

Every server of the session is asked, in a thread of its own for each look: it starts as root, to
see the kernel's tables, takes the owner's rights before it touches anything of the owner's, and
ends. Where there is no server and the session's processes are what they were, nothing is looked at.
A thread that something holds up (a dead file server) is left behind, and no second one is started
before it ends: the reading is unknown meanwhile.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slurm_reclaim.adapters.jupyter.interview import Answer, Interview
from slurm_reclaim.adapters.jupyter.processes import Finder, Found, Kernel
from slurm_reclaim.adapters.proc.census import Census
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.sample import GpuHeld, Reading, Signal

log = logging.getLogger(__name__)

ASKING = 2.0  # seconds for all servers of a session
PATIENCE = 3.0  # seconds for the whole look
ENDING = 0.2  # seconds in which a thread that has answered ends
MOST_NAMED = 5
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class _Look:
    found: Found = field(default_factory=Found)
    answers: Sequence[Answer] = ()
    problem: str = ""
    done: threading.Event = field(default_factory=threading.Event)


class JupyterMeter:
    """Can be read at any time by any thread: a reading says how things are now, so one more between
    two others, right before a dump, takes nothing from them."""

    # What it may speak of, also where it has nothing to say yet.
    signals = (Signal.JUPYTER.value,)

    def __init__(self, session: NodeSession, census: Census | None = None) -> None:
        """`census`: see Finder."""
        self._session = session
        self._finder = Finder(session.init, census)
        self._interview = Interview(session)
        self._last = 0.0
        self._started: dict[Kernel, float] = {}
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def held(self) -> Sequence[GpuHeld]:
        return ()

    def read(self, seconds: float) -> Mapping[str, Reading]:
        """Empty where the session has neither a Jupyter server nor a kernel."""
        with self._lock:
            known = self._finder.unchanged(time.monotonic())
            if known is not None and not known.servers and not known.kernels:
                return {}
            look = _Look(found=known) if known and not known.servers else self._look()
            reading = self._reading(look, time.time())
        return {} if reading is None else {Signal.JUPYTER.value: reading}

    def _look(self) -> _Look:
        look = _Look()
        if self._thread is not None:
            self._thread.join(ENDING)
        if self._thread is not None and self._thread.is_alive():
            look.problem = "Jupyter can't be looked at: the last look has not ended"
            return look
        self._thread = threading.Thread(
            target=self._take, args=(look,), name="jupyter", daemon=True
        )
        self._thread.start()
        if not look.done.wait(PATIENCE):
            return _Look(problem="Jupyter can't be looked at: its files don't answer")
        return look

    def _take(self, look: _Look) -> None:
        now = time.monotonic()
        try:
            found = self._finder.unchanged(now) or self._finder.look(now)
            if found.servers:
                look.answers = self._interview.ask(found.servers, now + ASKING)
            look.found = found
        except FileNotFoundError:
            pass  # the session has ended
        except OSError as error:
            look.problem = f"Jupyter can't be looked at: {error.strerror or error}"
        except Exception:
            # One session's oddity must not take the agent's other signals away.
            log.exception("job %d: jupyter", self._session.job_id)
            look.problem = "Jupyter can't be looked at"
        finally:
            look.done.set()

    def _reading(self, look: _Look, now: float) -> Reading | None:
        if look.problem:
            return Reading(None, self._last, look.problem)
        asked = {a.server.process.pid for a in look.answers}
        alone = [k for k in look.found.kernels if not asked & set(k.parents)]
        if not look.answers and not alone:
            return None
        states = [state for answer in look.answers for state in answer.kernels]
        times = {state: min(state.last_activity.timestamp(), now) for state in states}
        # A server records what its kernels say, and may miss the first word of one that was
        # started anew: it has to connect to it again.
        ours = [k for k in look.found.kernels if asked & set(k.parents)]
        # Worked out once: the clocks drift, and what creeps forward would be use again and again.
        self._started = {k: self._started.get(k) or _started(k, now) for k in ours}
        started = max(self._started.values(), default=0.0)
        self._last = max([self._last, started, *times.values()])
        also = [f"without a server: {kernel}" for kernel in alone[:MOST_NAMED]]
        problems = [a.problem for a in look.answers if a.problem]
        problems += [state.odd for state in states if state.odd]
        if problems:
            return Reading(None, self._last, "; ".join([*sorted(problems)[:MOST_NAMED], *also]))
        busy = sorted(str(state) for state in states if state.busy)
        newest = max(times, key=lambda state: times[state], default=None)
        if busy:
            said = [f"{name} busy" for name in busy[:MOST_NAMED]]
            said += [f"{len(busy) - MOST_NAMED} more busy"] if len(busy) > MOST_NAMED else []
        elif newest is not None:
            said = [f"{_count(states)} idle, {newest} used last"]
            if started > times[newest]:
                said = [f"{_count(states)} idle, one started after {newest} was used last"]
        else:
            said = ["no kernel"] if look.answers else []
        return Reading(
            float(len(busy)), self._last, "; ".join([", ".join(said), *also]).lstrip("; ")
        )


def _started(kernel: Kernel, now: float) -> float:
    """When its process began, in Unix seconds."""
    return now - max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - kernel.start / _TICKS)


def _count(states: Sequence[object]) -> str:
    return "1 kernel" if len(states) == 1 else f"{len(states)} kernels"
