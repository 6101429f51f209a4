"""A hibernated server is not a stopped one: Start brings it back.

While its session sleeps the hub takes a server for stopped, but one that resumes (`will_resume` of
JupyterHub's Spawner): its token stays valid, and what names the job is kept, over restarts of the
hub, too. Start restores that job instead of submitting another one. Whatever becomes of such a
start, the job is never cancelled: it is somebody's session.

What is asked is asked as the owner, with `reclaim` behind the spawner's own `exec_prefix`: the hub
needs no rights of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from batchspawner import SlurmSpawner
from batchspawner.batchspawner import JobStatus, format_template
from traitlets import Unicode

_AWAKE = frozenset({"ACTIVE", "IDLE", "WARNED", "HIBERNATING"})
_ASLEEP = frozenset({"REQUEUING", "HIBERNATED", "QUEUED", "RESTORING", "FAILED"})
# Exit codes of docs/errors.md: what it answers of a job that has no session. All others, a mistake
# in this host's configuration for one, are no answer about the job.
_ANSWERS = range(20, 30)
_NOBODY = ("", "0.0.0.0", "127.0.0.1")


class NotRestored(RuntimeError):
    """The hub shows `jupyterhub_message` to the user (JupyterHub's documentation of Spawner)."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.jupyterhub_message = message


async def _run(
    line: str, text: str | None = None, env: dict[str, str] | None = None
) -> tuple[int, str, str]:
    """Exit code, output and errors of a line of the shell's. Who is cancelled leaves none behind
    that may be killed."""
    process = await asyncio.create_subprocess_shell(
        line, env=env, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
    )
    try:
        out, error = await process.communicate((text or "").encode())
    except BaseException:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        raise
    said, complaint = (text.decode("utf-8", "replace").strip() for text in (out, error))
    return process.returncode or 0, said, complaint


class ReclaimSlurmSpawner(SlurmSpawner):  # type: ignore[misc]
    """batchspawner's SlurmSpawner with it."""

    # Traits of the classes above it.
    api_token: str
    ip: str
    job_id: str
    job_status: str
    port: int
    will_resume: bool

    # By its path: in the hub's own environment there is one that lacks what it needs.
    reclaim_cmd = Unicode("/usr/bin/reclaim", help="The program, run as the user.").tag(config=True)

    # What runs in a step of srun can't be hibernated: the server runs in the batch script itself.
    req_srun = Unicode("", help="As SlurmSpawner's; empty, for no step.").tag(config=True)

    # Of the server that the job holds; the hub forgets both when it takes it for stopped.
    _token = ""
    _port = 0
    _told = ""

    # -- what the hub keeps of it -------------------------------------------------------------

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        kept = state.get("reclaim", {})
        self._token, self._port = kept.get("token", ""), kept.get("port", 0)
        self.will_resume = kept.get("asleep", False)

    def get_state(self) -> dict[str, Any]:
        state: dict[str, Any] = super().get_state()
        if self.job_id and self._port:
            kept = {"token": self._token, "port": self._port, "asleep": self.will_resume}
            state["reclaim"] = kept
        return state

    def clear_state(self) -> None:
        """The hub does so at each stop and before each start."""
        job, status = self.job_id, self.job_status
        super().clear_state()
        if self.will_resume:
            self.job_id, self.job_status = job, status
        else:
            self._token, self._port = "", 0

    # -- is it there? -------------------------------------------------------------------------

    async def poll(self) -> int | None:
        """None while the server runs, or may run: what is not answered says nothing."""
        if not self.job_id:
            return 1
        status = await self.query_job_status()
        if status is JobStatus.RUNNING and not self.will_resume:
            self.will_resume = self._is_elsewhere()
            return 0 if self.will_resume else None
        session = await self._session()
        if not session:
            return 0 if self.will_resume else None
        state = session.get("state", "")
        if state in _AWAKE and not self.will_resume:
            return None
        self.will_resume = state in _ASLEEP or state in _AWAKE
        return 0 if self.will_resume else await super().poll()

    def _is_elsewhere(self) -> bool:
        """Whether it was restored on another node without the hub."""
        if not self._port or self.server is None or self.server.ip in _NOBODY:
            return False
        return bool(self.state_gethost() != self.server.ip)

    async def _session(self) -> dict[str, Any]:
        """As `reclaim show --json` has it: a session, why there is none, or {} where that is not
        answered."""
        code, out, error = await self._reclaim("show", "--json")
        try:
            shown = json.loads(out)
        except ValueError:
            shown = None
        if not isinstance(shown, dict) or (code and code not in _ANSWERS):
            self.log.warning("job %s: reclaim ended with %s: %s", self.job_id, code, error)
            return {}
        return shown

    async def _reclaim(self, verb: str, *options: str) -> tuple[int, str, str]:
        """Exit code, output, complaint."""
        prefix = format_template(self.exec_prefix, **self.get_req_subvars())
        words = [self.reclaim_cmd, verb, shlex.quote(self.job_id), *options]
        return await _run(" ".join((prefix, *words)))

    async def run_command(
        self, cmd: str, input: str | None = None, env: dict[str, str] | None = None
    ) -> str:
        """batchspawner's own turns a start that was given up into an answer, and goes on."""
        code, out, error = await _run(cmd, input, env)
        if code:
            self.log.error("Subprocess returned exitcode %s\n%s", code, error)
            raise RuntimeError(error)
        return out

    # -- start and stop -----------------------------------------------------------------------

    async def start(self) -> Any:
        if self.will_resume and self.job_id:
            fresh = self.api_token
            if await self._resume():
                return self.ip, self.port
            self.will_resume = False
            self.clear_state()
            self.api_token = fresh
        address = await super().start()
        self._token, self._port = self.api_token, self.port
        return address

    async def _resume(self) -> bool:
        """Until the session is back. False where its job has ended; raises NotRestored."""
        asked = False
        while True:
            session = await self._session()
            state, self._told = session.get("state", ""), session.get("reason", self._told)
            if state in _AWAKE and await self._runs():
                break
            if state == "ENDED" or (session and not state):
                return await self._has_ended()
            if state == "FAILED":
                raise NotRestored(
                    f"job {self.job_id} can't be restored: {self._told}. Its checkpoint is kept: "
                    f"ask the site's support. scancel {self.job_id} gives it up."
                )
            if state == "HIBERNATED":
                if asked:
                    raise NotRestored(f"job {self.job_id} was not restored: {self._told}")
                await self._ask_restore()
                asked = True
            await asyncio.sleep(self.startup_poll_interval)
        self.ip, self.port = self.state_gethost(), self._port
        # The server in the job has the token that it was started with.
        self.api_token = self._token or self.api_token
        self.will_resume = False
        return True

    async def _runs(self) -> bool:
        return await self.query_job_status() is JobStatus.RUNNING

    async def _has_ended(self) -> bool:
        """False. A job that Slurm still holds is not given up for another one."""
        status = await self.query_job_status()
        if status in (JobStatus.RUNNING, JobStatus.PENDING, JobStatus.UNKNOWN) or (
            "SPECIAL_EXIT" in self.job_status
        ):
            raise NotRestored(
                f"job {self.job_id} is in Slurm ({self.job_status}), and slurm-reclaim does not "
                "know its session: ask the site's support"
            )
        return False

    async def _ask_restore(self) -> None:
        code, _, error = await self._reclaim("restore", "--no-wait")
        if code:
            raise NotRestored(f"job {self.job_id} is not restored: {error}")

    async def stop(self, now: bool = False) -> None:
        # A hub that finds a server frozen in the middle of its hibernation stops it, too.
        if not self.will_resume and self.job_id:
            state = (await self._session()).get("state", "")
            self.will_resume = state in _ASLEEP or state == "HIBERNATING"
        if self.will_resume:
            self.log.info("job %s sleeps, and is left as it is", self.job_id)
            return
        await super().stop(now)

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        while self.will_resume:
            yield {"message": f"Your session sleeps in job {self.job_id}. {self._told}"}
            await asyncio.sleep(1)
        async for each in super().progress():
            yield each
