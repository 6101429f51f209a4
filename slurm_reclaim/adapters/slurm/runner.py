"""Runs Slurm's commands: fixed directory, own environment, bounded time, output captured.

The environment is made anew: squeue and scontrol obey dozens of SQUEUE_* and SLURM_* variables,
any of which would change what we read.
"""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from slurm_reclaim.errors import SchedulerUnavailable

# Where a site keeps slurm.conf elsewhere, the service's own environment says so.
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_SACK_JWKS", "SLURM_SACK_KEY")
_SET = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "SLURM_TIME_FORMAT": "%s",  # Unix seconds: no time zone, no summer time, no relative dates
}

# Whoever may ask reclaimd can have it run them: more would be a burden to the host and slurmctld.
MOST_AT_ONCE = 24


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    err: str


class Runner:
    def __init__(self, bin: str, timeout: float) -> None:
        """`timeout`: seconds after which a command counts as unanswered and is killed."""
        self._bin = Path(bin)
        self._timeout = timeout
        self._room = asyncio.Semaphore(MOST_AT_ONCE)
        self._environment = {**{k: os.environ[k] for k in _KEPT if k in os.environ}, **_SET}

    async def run(
        self, *command: str, allowed: Collection[int] = (0,), at_once: bool = False
    ) -> Answer:
        """The answer of `command`, whose first word is a program of Slurm; `at_once`: it waits for
        no other. Raises SchedulerUnavailable for a status that is not in `allowed` and where there
        is none."""
        if at_once:
            answer = await self._answer(command)
        else:
            async with self._room:
                answer = await self._answer(command)
        if answer.code not in allowed:
            words = (answer.err or answer.out).strip() or "no message"
            raise SchedulerUnavailable(f"{command[0]} failed with status {answer.code}: {words}")
        return answer

    async def _answer(self, command: tuple[str, ...]) -> Answer:
        program = str(self._bin / command[0])
        try:
            process = await asyncio.create_subprocess_exec(
                program, *command[1:],
                stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=self._environment, cwd="/",
            )  # fmt: skip
        except OSError as error:
            raise SchedulerUnavailable(
                f"{program} can't be run: {error.strerror}",
                hint="slurm.bin names the directory of Slurm's commands",
            ) from None
        try:
            out, err = await asyncio.wait_for(process.communicate(), self._timeout)
        except asyncio.TimeoutError:
            raise SchedulerUnavailable(
                f"{command[0]} did not answer within {self._timeout:g} s"
            ) from None
        finally:
            await _reap(process)
        return Answer(process.returncode or 0, _text(out), _text(err))


async def _reap(process: Process) -> None:
    """Leave no process behind, also when the caller was cancelled."""
    if process.returncode is None:
        process.kill()
        await process.wait()


def _text(raw: bytes) -> str:
    # Slurm stores what users typed, in whatever encoding; it must not stop us from reading on.
    return raw.decode("utf-8", "backslashreplace")
