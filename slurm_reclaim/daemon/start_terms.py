"""What a job that starts is given, and whether it is managed: by the configuration and by what the
plugin tells of it alone."""

from __future__ import annotations

import pwd
from pathlib import Path

from slurm_reclaim.adapters.transport import lines
from slurm_reclaim.config import adopt
from slurm_reclaim.config.schema import Config

# What the kernel keeps for itself when PIDs wrap around (RESERVED_PIDS), so none lies below it.
_RESERVED_PIDS = 299
_IO_URING = Path("/proc/sys/kernel/io_uring_disabled")


def fresh_last_pid(job_id: int) -> int:
    """Where the PIDs of a fresh session begin. Not the same for every job: a shared home is full of
    files named by PID (jpserver-300.json), and two sessions must not have the same names. Below
    32768, the least pid_max there is."""
    return _RESERVED_PIDS + 32 * (job_id % 900)


def block_io_uring(setting: str) -> bool:
    """Whether sessions get the filter: by the setting, and for "auto" by what the kernel allows."""
    if setting != "auto":
        return setting == "always"
    try:
        return _IO_URING.read_text().strip() != "2"
    except OSError:
        return True


def managed_by(config: Config, message: dict[str, str]) -> tuple[bool, str]:
    """Whether the job that the plugin tells of is managed, and why."""
    facts = {k.removeprefix("env."): v for k, v in message.items() if k.startswith("env.")}
    # slurmstepd does not know the name yet at this point (Slurm 24.11): what is there is what the
    # job was submitted with.
    facts["SLURM_JOB_ID"] = message.get("job", "")
    facts["SLURM_JOB_USER"] = _user(lines.number(message, "uid", -1))
    return adopt.decide(config.adopt, facts, message.get("option", ""))


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
