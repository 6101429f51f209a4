"""Changes to one job: what Slurm refuses is told apart from what it did not answer.

`job` is `123`, or `123_4` for a task of an array. Never the number of a task: the last one that an
array starts has the number of the array, and by that number Slurm changes all of them.
"""

from __future__ import annotations

import math

from slurm_reclaim.adapters.slurm.runner import Runner
from slurm_reclaim.errors import RequeueFailed, SchedulerUnavailable

# Slurm's words for "I could not be asked". Anything else is a no: taking a no for silence would
# try it for ever, and the session would be neither running nor held.
_SILENCE = (
    "Unable to contact slurm controller",
    "Communication connection failure",
    "Connection refused",
    "Connection timed out",
    "Connection reset",
    "Transport endpoint",
    "Socket timed out",
    "Zero Bytes were transmitted",
    "standby mode",
    "Unexpected message received",  # what 24.11 says when slurmctld or munged is down
    "Protocol authentication error",
    "authentication",
    "Munge",
    "munge",
    "Unable to open",
    "configuration",
    "Resource temporarily unavailable",
    "Message receive failure",
    "Message send failure",
    "System call interrupted",
    "DBD",
)


async def update(runner: Runner, job: str, **changes: str) -> None:
    """`scontrol update`. Raises RequeueFailed with Slurm's words, SchedulerUnavailable."""
    words = [f"{name}={value}" for name, value in changes.items()]
    await _tell(runner, "update", f"JobId={job}", *words)


async def requeue_held(runner: Runner, job: str, *, special_exit: bool) -> None:
    options = ["State=SpecialExit"] if special_exit else []
    await _tell(runner, "requeuehold", *options, job)


async def requeue(runner: Runner, job: str) -> None:
    await _tell(runner, "requeue", job)


async def release(runner: Runner, job: str) -> None:
    await _tell(runner, "release", job)


async def hold(runner: Runner, job: str) -> None:
    await _tell(runner, "hold", job)


async def cancel(runner: Runner, job: str) -> None:
    await _tell(runner, job, program="scancel")


def minutes(seconds: float) -> str:
    """Slurm keeps time limits in whole minutes; rounding down would cut a session short."""
    return str(max(1, math.ceil(seconds / 60)))


async def _tell(runner: Runner, *words: str, program: str = "scontrol") -> None:
    answer = await runner.run(program, *words, allowed=range(256))
    said = " ".join((answer.err or answer.out).split())
    if answer.code == 0:
        return
    if any(phrase in said for phrase in _SILENCE):
        raise SchedulerUnavailable(f"{program} {words[0]}: {said}")
    raise RequeueFailed(f"{program} {words[0]} was refused: {said or 'no message'}")
