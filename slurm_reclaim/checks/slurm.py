"""Slurm's settings, from one `scontrol show config`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from slurm_reclaim.checks.host import Host
from slurm_reclaim.checks.result import Check, Family
from slurm_reclaim.config.schema import Config

_FAMILY = Family("slurm")
Settings = Mapping[str, str]

_OLDEST = (23, 11)
_SETTING = re.compile(r"^(\w+)\s*=\s?(.*)$", re.MULTILINE)


def parse(text: str) -> dict[str, str]:
    """`scontrol show config` as key -> value; "(null)" becomes empty."""
    return {
        key: "" if value.strip() == "(null)" else value.strip()
        for key, value in _SETTING.findall(text)
    }


def read(host: Host, config: Config) -> tuple[list[Check], dict[str, str]]:
    """The settings and the checks of them; none of both where Slurm does not answer."""
    ran = host.run([f"{config.slurm.bin}/scontrol", "show", "config"], timeout=config.slurm.timeout)
    settings = parse(ran.out)
    if ran.code != 0 or "SLURM_VERSION" not in settings:
        return [
            _FAMILY.failed(
                "slurm answers",
                f"scontrol show config: {ran.problem}",
                "is slurm.bin right, and does `scontrol ping` say UP?",
            )
        ], {}
    return [check(settings) for check in _CHECKS], settings


def account(host: Host, config: Config) -> Check:
    """reclaimd writes AdminComment, which needs the level Administrator; Operator is not enough."""
    name, user = "controller account", config.controller.user
    if user == "root":
        return _FAMILY.ok(name, "root")
    hint = f"sacctmgr -i add user {user} account=root AdminLevel=Administrator"
    ran = host.run(
        [f"{config.slurm.bin}/sacctmgr", "-nP", "show", "user", user, "format=adminlevel"],
        timeout=config.slurm.timeout,
    )
    if ran.code != 0:
        return _FAMILY.unchecked(name, f"sacctmgr: {ran.problem}")
    level = ran.out.strip() or "none"
    return _FAMILY.judge(
        name, level.startswith("Admin"), f"{user} has the level {level} in Slurm's accounting", hint
    )


def knows_node(host: Host, config: Config) -> bool:
    """Whether this host is a compute node."""
    ran = host.run(
        [f"{config.slurm.bin}/scontrol", "show", "node", host.name], timeout=config.slurm.timeout
    )
    return ran.code == 0 and "NodeName=" in ran.out


def _version(settings: Settings) -> Check:
    text = settings["SLURM_VERSION"]
    numbers = re.match(r"(\d+)\.(\d+)", text)
    name = "slurm version"
    if numbers and (int(numbers[1]), int(numbers[2])) >= _OLDEST:
        return _FAMILY.ok(name, text)
    return _FAMILY.warning(
        name, f"{text} is older than 23.11", "the plugin builds for it, but is not tried on it"
    )


def _requeue(settings: Settings) -> Check:
    return _FAMILY.judge(
        "JobRequeue",
        settings.get("JobRequeue") == "1",
        settings.get("JobRequeue", "not shown"),
        "set JobRequeue=1 in slurm.conf: a job that can't be requeued can't be hibernated. "
        "(With 0, only jobs submitted with --requeue can.)",
    )


def _auth(settings: Settings) -> Check:
    value = settings.get("AuthType", "")
    return _FAMILY.judge(
        "AuthType",
        value == "auth/munge",
        value,
        "slurm-reclaim authenticates through MUNGE: run munged on every host, with one key",
    )


def _proctrack(settings: Settings) -> Check:
    value = settings.get("ProctrackType", "")
    return _FAMILY.judge(
        "ProctrackType",
        value == "proctrack/cgroup",
        value,
        "set ProctrackType=proctrack/cgroup: only a cgroup keeps hold of restored processes, so "
        "that scancel ends them",
    )


def _task(settings: Settings) -> Check:
    value = settings.get("TaskPlugin", "")
    if "task/cgroup" in value.split(","):
        return _FAMILY.ok("TaskPlugin", value)
    return _FAMILY.warning(
        "TaskPlugin",
        value or "none",
        "set TaskPlugin=task/cgroup,task/affinity, or a restored session has no CPU and memory "
        "limits (neither has any other job)",
    )


def _devices(settings: Settings) -> Check:
    """As slurmctld's host has it: every node should have the same cgroup.conf."""
    value = settings.get("ConstrainDevices", "not shown")
    if "gpu" not in settings.get("GresTypes", "").split(",") or value == "yes":
        return _FAMILY.ok("ConstrainDevices", value)
    return _FAMILY.warning(
        "ConstrainDevices",
        value,
        "set ConstrainDevices=yes in cgroup.conf: where a job can open GPUs that it was not given, "
        "its GPU state can't be saved (docs/gpu.md)",
    )


def _output(settings: Settings) -> Check:
    if settings.get("JobFileAppend") == "1":
        return _FAMILY.ok("JobFileAppend", "1: output files are appended to at a requeue")
    return _FAMILY.ok(
        "JobFileAppend",
        "0: Slurm truncates output files at a requeue; slurm-reclaim puts back what was in them",
    )


def _kill_wait(settings: Settings) -> Check:
    seconds = _number(settings.get("KillWait", ""))
    if seconds is not None and seconds > 120:
        return _FAMILY.warning(
            "KillWait",
            settings["KillWait"],
            "a requeue may take this long where a step of the job does not end; 30 is usual",
        )
    return _FAMILY.ok("KillWait", settings.get("KillWait", "not shown"))


def _job_age(settings: Settings) -> Check:
    seconds = _number(settings.get("MinJobAge", ""))
    return _FAMILY.judge(
        "MinJobAge",
        seconds is None or seconds == 0 or seconds >= 60,
        settings.get("MinJobAge", "not shown"),
        "set MinJobAge=300: slurmctld must remember an ended job longer than a few queries, so "
        "that reclaimd sees how it ended",
    )


def _memory(settings: Settings) -> Check:
    value = settings.get("SelectTypeParameters", "")
    if "MEMORY" in value.upper():
        return _FAMILY.ok("SelectTypeParameters", value)
    return _FAMILY.warning(
        "SelectTypeParameters",
        value or "none",
        "use CR_Core_Memory: without memory as a resource a restored session may land on a node "
        "that is full",
    )


def _requeue_exit(settings: Settings) -> Check:
    codes = [f"{k}={settings[k]}" for k in ("RequeueExit", "RequeueExitHold") if settings.get(k)]
    if not codes:
        return _FAMILY.ok("RequeueExit", "none")
    return _FAMILY.warning(
        "RequeueExit",
        ", ".join(codes),
        "a session whose script ends with such a status is started again from scratch by Slurm, "
        "as it would be without slurm-reclaim",
    )


def _prolog(settings: Settings) -> Check:
    value = settings.get("PrologFlags", "")
    if "contain" in value.lower():
        return _FAMILY.ok("PrologFlags", value)
    return _FAMILY.ok(
        "PrologFlags", f"{value or 'none'} (Contain only matters for pam_slurm_adopt)"
    )


def _container(settings: Settings) -> Check:
    value = settings.get("JobContainerType") or settings.get("NamespaceType", "")
    if value in ("", "job_container/none", "namespace/none"):
        return _FAMILY.ok("JobContainerType", "none")
    if value == "job_container/tmpfs":
        return _FAMILY.ok("JobContainerType", f"{value}: each job's /tmp is saved with its session")
    return _FAMILY.warning(
        "JobContainerType",
        value,
        "not tried together with slurm-reclaim; session.private_tmp gives each session a /tmp of "
        "its own",
    )


def _accounting(settings: Settings) -> Check:
    value = settings.get("AccountingStorageType", "")
    if value == "accounting_storage/slurmdbd":
        return _FAMILY.ok("AccountingStorageType", value)
    return _FAMILY.warning(
        "AccountingStorageType",
        value or "none",
        "without slurmdbd nobody is an operator: only root acts on the sessions of others, and "
        "reclaimd must run as root or SlurmUser",
    )


_CHECKS: tuple[Callable[[Settings], Check], ...] = (
    _version, _auth, _requeue, _proctrack, _task, _devices, _memory, _output, _kill_wait, _job_age,
    _requeue_exit, _prolog, _container, _accounting,
)  # fmt: skip


def _number(text: str) -> int | None:
    """Seconds of "300 sec"."""
    match = re.match(r"\d+", text)
    return int(match[0]) if match else None
