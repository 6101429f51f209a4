"""Whether Slurm shows us every job. With PrivateData=jobs it shows those of others to operators
only, and answers for any other that there is no such job: an account that has lost its level would
see every session end."""

from __future__ import annotations

import os
import pwd
import re

from slurm_reclaim.adapters.slurm.runner import Runner
from slurm_reclaim.errors import SchedulerUnavailable

HINT = "see: reclaim check"
_SETTING = re.compile(r"^(PrivateData|SlurmUser)\s*=\s*(\S*)", re.MULTILINE)
_LEVEL = re.compile(r"\bUserName=([^(\s]+)\(\S*\).*?\bAdminLevel=(\S+)")
_ENOUGH = frozenset({"Operator", "Administrator"})


async def hidden(runner: Runner) -> str:
    """Why jobs may be hidden from us; "" where none is. Raises SchedulerUnavailable."""
    if os.geteuid() == 0:
        return ""
    answer = await runner.run("scontrol", "show", "config")
    settings = dict(_SETTING.findall(answer.out))
    if "PrivateData" not in settings:
        raise SchedulerUnavailable("scontrol show config names no PrivateData")
    me = pwd.getpwuid(os.geteuid()).pw_name
    if "jobs" not in settings["PrivateData"] or settings.get("SlurmUser", "").startswith(f"{me}("):
        return ""
    # From slurmctld, which is who hides them, and not from the accounting.
    answer = await runner.run("scontrol", "-o", "show", "assoc_mgr", f"users={me}", "flags=users")
    levels = dict(_LEVEL.findall(answer.out))
    if levels.get(me, "") in _ENOUGH:
        return ""
    return f"it hides jobs of others from {me}, whose level is {levels.get(me, 'not known')}"
