"""Times, sizes and sessions as words for people. Pure."""

from __future__ import annotations

import time

from slurm_reclaim.model.event import Event
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.sample import GpuHeld
from slurm_reclaim.model.session import Progress, Session
from slurm_reclaim.model.words import span

# The session has no allocation; its node is the one it was on last.
_NOWHERE = frozenset({State.HIBERNATED, State.QUEUED, State.FAILED, State.ENDED})


def size(count: float) -> str:
    """1288490188 is "1.2 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def moment(at: float) -> str:
    """Local time with seconds; empty for "never"."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at else ""


def node(session: Session) -> str:
    """Where it has an allocation; empty while it has none."""
    return "" if session.state in _NOWHERE else session.node


def next_step(session: Session) -> str:
    """What the owner can do now; empty where there is nothing to do but wait."""
    job = session.job
    return {
        State.HIBERNATED: f"bring it back: reclaim restore {job} (or scontrol release {job})",
        State.FAILED: f"its checkpoint is kept; show an administrator: reclaim events {job}",
        State.WARNED: f"use it, or keep it: reclaim keep {job} (why: reclaim explain {job})",
        State.QUEUED: f"wait for a node: squeue -j {job} --start",
    }.get(session.state, "")


def reason(session: Session) -> str:
    """Why it is in its state; of one that could not be hibernated or restored now, that."""
    if session.state is State.ACTIVE and session.blockers:
        return f"can't be hibernated: {'; '.join(session.blockers)}"
    if session.unfit is not None and session.state in _NOWHERE:
        return f"no node can restore it now: {session.unfit.reason}"
    return session.reason


def checkpoint(session: Session) -> str:
    if session.checkpoint < 0:
        return ""
    return size(session.checkpoint_bytes) if session.checkpoint_bytes else "yes"


def vram(session: Session) -> str:
    """GPU memory that it holds or, hibernated, gave back; "" where there is none. Held is not
    used: an idle session holds as much."""
    if session.state in _NOWHERE and session.state is not State.ENDED:
        return f"{size(session.freed_gpu)} freed" if session.freed_gpu else ""
    if not session.gpus:
        return ""
    return f"{size(session.vram)} held" if _all_known(session) else "held, not known how much"


def gpus(session: Session) -> str:
    """One line for each of its GPUs."""
    return "\n".join(_gpu(gpu) for gpu in session.gpus)


def _all_known(session: Session) -> bool:
    return all(gpu.memory >= 0 for gpu in session.gpus)


def _gpu(gpu: GpuHeld) -> str:
    held = f"{size(gpu.memory)} held" if gpu.memory >= 0 else "held memory not known"
    of = f" of {size(gpu.memory_total)}" if gpu.memory_total else ""
    others = f", others on it: {', '.join(gpu.foreign)}" if gpu.foreign else ""
    return f"{gpu.index}: {gpu.model} ({gpu.uuid}), {held}{of}{others}"


def progress(progress: Progress, left: float | None) -> str:
    """One line: "dump: 1.2 GiB of 4.0 GiB, 12s left"."""
    text = progress.step
    if progress.total:
        text += f": {size(progress.done)} of {size(progress.total)}"
    elif progress.done:
        text += f": {size(progress.done)}"
    return text + (f", {span(left)} left" if left is not None else "")


def event(event: Event) -> str:
    """The state change and the reason of an event."""
    if event.before == event.after:
        return event.reason
    change = f"{event.before} -> {event.after}" if event.before else event.after
    return f"{change}: {event.reason}"
