"""Gives processes their GPU state back, wherever each was left: none that hangs, fails or is not
what it was keeps another from its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from slurm_reclaim.adapters.cuda import holders
from slurm_reclaim.adapters.cuda.driver import CallFailed, Driver, NoAnswer, told
from slurm_reclaim.adapters.proc.tree import Process, same_process
from slurm_reclaim.errors import GpuUnavailable

_ATTEMPTS = 3
_PAUSE = 1.0  # seconds between them
_SETTLES_WITHIN = 2.0  # seconds between two looks at what the driver is still about
_ON_THE_WAY = ("checkpointing", "restoring")


def all_of(
    open_driver: Callable[[], Driver], processes: Sequence[Process], limit: float
) -> dict[str, str]:
    """In this order; `limit`: seconds for each call. Those that are not running then, by name, and
    why; none where all is well."""
    left: dict[str, str] = {}
    for attempt in range(_ATTEMPTS if processes else 0):
        time.sleep(_PAUSE if attempt else 0)
        left = _attempt(open_driver, processes, limit)
        if not left:
            break
    return left


def _attempt(
    open_driver: Callable[[], Driver], processes: Sequence[Process], limit: float
) -> dict[str, str]:
    """Whoever hangs is left out from there on, and looked at anew by the next attempt: its call was
    killed with the child that made it."""
    hung: dict[int, str] = {}
    while True:
        rest = [p for p in processes if p.pid not in hung]
        try:
            with open_driver() as driver:
                failed = _undo(driver, rest, limit)
        except NoAnswer as error:
            if any(p.pid == error.pid for p in rest):
                hung[error.pid] = told(error)
                continue
            failed = {str(p): told(error) for p in rest}
        except GpuUnavailable as error:
            failed = {str(p): told(error) for p in rest}
        return failed | {str(p): hung[p.pid] for p in processes if p.pid in hung}


def _undo(driver: Driver, processes: Sequence[Process], limit: float) -> dict[str, str]:
    """All onto the cards, then all unlocked: what they share must be there for each."""
    failed: dict[str, str] = {}
    steps = (("checkpointed", partial(driver.restore, limit=limit)), ("locked", driver.unlock))
    for before, act in steps:
        for process in processes:
            try:
                if _settled(driver, process, limit) == before:
                    act(process)
            except CallFailed as error:
                failed[str(process)] = told(error)
    for process in processes:
        try:
            state = _settled(driver, process, limit)
        except CallFailed as error:
            failed[str(process)] = told(error)
            continue
        if state in ("running", "gone"):
            failed.pop(str(process), None)
        else:
            failed.setdefault(str(process), f"it is {state}")
    return failed


def _settled(driver: Driver, process: Process, limit: float) -> str:
    """Its state, once the driver is not about it any more. One that has become another program
    (exec), or whose PID another has now, has none, by the kernel's word."""
    deadline = time.monotonic() + limit
    while True:
        if not same_process(process.pid, process.start):
            return "gone"
        try:
            state = driver.state(process)
        except CallFailed:
            now = holders.look(process)
            if now.libcuda or now.devices:
                raise
            return "gone"
        if state not in _ON_THE_WAY or time.monotonic() > deadline:
            return state
        time.sleep(_SETTLES_WITHIN)
