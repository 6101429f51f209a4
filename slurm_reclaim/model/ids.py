"""Names of things: job ids as Slurm writes them, and the identity of a session.

Job ids are reused (wiped state directories, several clusters on one store), so a bare job id never
names an image: a session is (cluster, job id, submit time of its first run, uid).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurm_reclaim.errors import BadRequest

_JOB_FORM = re.compile(
    r"^(?P<job>\d{1,10})(?:_(?P<task>\d{1,10}|\[[^\]]*\]))?(?:\+(?P<het>\d+))?"
    r"(?:\.(?P<step>[\w+]+))?$",
    re.ASCII,
)
# ASCII digits alone, no zeros before them, and no more than the numbers can have.
_SESSION_FORM = re.compile(
    r"\A(?P<cluster>[^/.][^/]*(?:/[^/.][^/]*)*)/(?P<job>[1-9][0-9]{0,9})"
    r"\.(?P<uid>0|[1-9][0-9]{0,9})\.(?P<submitted>0|[1-9][0-9]{0,11})\Z"
)
_LONGEST_SHOWN = 200
_MOST_JOB = 0xFFFFFFFD  # those above are no numbers to Slurm (NO_VAL, INFINITE)


@dataclass(frozen=True, slots=True)
class JobRef:
    """A job as a person typed it: `123` or the array task `123_4`."""

    job_id: int
    array_task: int | None = None

    def __str__(self) -> str:
        return str(self.job_id) if self.array_task is None else f"{self.job_id}_{self.array_task}"


def parse_job_ref(text: str) -> JobRef:
    """The job that `text` names. Raises BadRequest with a hint for forms that name no one job."""
    match = _JOB_FORM.match(text.strip())
    text = text[:_LONGEST_SHOWN]
    if match is None or not 0 < int(match["job"]) <= _MOST_JOB:
        raise BadRequest(f"{text!r} is not a job id", hint="job ids look like 123 or 123_4")
    job, task, het, step = match["job"], match["task"], match["het"], match["step"]
    if step is not None:
        raise BadRequest(
            f"{text!r} names a step; sessions are whole jobs",
            hint=f"use {job if task is None else f'{job}_{task}'}",
        )
    if het is not None:
        raise BadRequest(
            f"{text!r} names a component of a heterogeneous job",
            hint="heterogeneous jobs can't be hibernated: only single-node batch jobs are managed",
        )
    if task is not None and not task.isdigit():
        raise BadRequest(
            f"{text!r} names several array tasks", hint=f"name one task, for example {job}_1"
        )
    return JobRef(int(job), None if task is None else int(task))


@dataclass(frozen=True, slots=True, order=True)
class SessionId:
    """Identity of a session through all its requeues. `submitted` is Unix seconds."""

    cluster: str
    job_id: int
    uid: int
    submitted: int

    def __hash__(self) -> int:
        # A controller looks a session up some twenty times for each of its samples. Job ids are as
        # good as unique: those of a reused one are told apart by comparing.
        return self.job_id

    @property
    def folder(self) -> str:
        """Name of the session's directory below `<store>/<cluster>/`; the job id comes first so
        that the SPANK plugin finds it by the prefix `<job id>.<uid>.`"""
        return f"{self.job_id}.{self.uid}.{self.submitted}"

    def __str__(self) -> str:
        return f"{self.cluster}/{self.folder}"


def parse_session_id(text: str) -> SessionId:
    """The inverse of `str(SessionId)`: of each there is one way to write it. Raises BadRequest."""
    match = _SESSION_FORM.match(text)
    if match is None:
        raise BadRequest(f"{text[:_LONGEST_SHOWN]!r} is not a session id")
    return SessionId(
        match["cluster"], int(match["job"]), int(match["uid"]), int(match["submitted"])
    )
