"""The adapter against programs that behave like Slurm's, well or badly."""

from __future__ import annotations

import asyncio
import os
import pwd
import stat
import time
from pathlib import Path

import pytest

from slurm_reclaim.adapters.slurm import runner, scontrol, squeue
from slurm_reclaim.adapters.slurm.nodeset import NodeSetNames
from slurm_reclaim.adapters.slurm.rows import Cutter
from slurm_reclaim.adapters.slurm.runner import Runner
from slurm_reclaim.adapters.slurm.scheduler import SlurmCommands
from slurm_reclaim.adapters.slurm.values import number, seconds
from slurm_reclaim.errors import RequeueFailed, SchedulerUnavailable


class Programs:
    """A directory of shell scripts in the place of Slurm's commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, name: str, script: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def runner(self, timeout: float = 10.0) -> Runner:
        return Runner(str(self.folder), timeout)

    def slurm(self, timeout: float = 10.0) -> SlurmCommands:
        return SlurmCommands(self.runner(timeout), NodeSetNames())


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


async def test_the_environment_is_ours(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    monkeypatch.setenv("SLURM_CLUSTERS", "all")
    monkeypatch.setenv("SLURM_CONF", "/etc/elsewhere/slurm.conf")
    programs.put("squeue", "env")
    lines = (await programs.runner().run("squeue")).out.split()
    assert "SLURM_TIME_FORMAT=%s" in lines
    assert "SLURM_CONF=/etc/elsewhere/slurm.conf" in lines
    assert not [line for line in lines if "SQUEUE" in line or "CLUSTERS" in line]


async def test_silence(programs: Programs) -> None:
    with pytest.raises(SchedulerUnavailable, match="can't be run"):
        await programs.slurm().jobs()
    programs.put("squeue", "echo 'slurm_load_jobs error: Unable to contact' >&2; exit 1")
    with pytest.raises(SchedulerUnavailable, match="Unable to contact"):
        await programs.slurm().jobs()
    with pytest.raises(SchedulerUnavailable):
        await programs.slurm().detail(7)
    programs.put("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    programs.put("scontrol", "echo 'PrivateData = none'")
    assert await programs.slurm().detail(7) is None


async def test_a_command_that_hangs_is_killed(programs: Programs) -> None:
    programs.put("squeue", f"echo $$ > {programs.folder}/pid; exec sleep 60")
    began = time.monotonic()
    with pytest.raises(SchedulerUnavailable, match=r"within 0\.3 s"):
        await programs.slurm(0.3).jobs()
    assert time.monotonic() - began < 5
    pid = int((programs.folder / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_cancelled_caller_leaves_no_process(programs: Programs) -> None:
    programs.put("squeue", f"echo $$ > {programs.folder}/pid; exec sleep 60")
    asking = asyncio.create_task(programs.slurm().jobs())
    while not (programs.folder / "pid").exists() or not (programs.folder / "pid").read_text():
        await asyncio.sleep(0.01)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    with pytest.raises(ProcessLookupError):
        os.kill(int((programs.folder / "pid").read_text()), 0)


async def test_half_an_answer_is_none() -> None:
    cutter = Cutter(("JobID", "Name"))
    first, last = (part.partition(":")[2] for part in cutter.format.split(","))
    whole = f"1{first}a{last}\n2{first}b{last}\n"
    assert [row["Name"] for row in cutter.rows(whole)] == ["a", "b"]
    assert list(cutter.rows("")) == []
    for part in (whole[:-3], whole + "3", f"1{last}\n"):
        with pytest.raises(SchedulerUnavailable):
            list(cutter.rows(part))


def test_separators_are_new_each_time() -> None:
    assert Cutter(("A", "B")).format != Cutter(("A", "B")).format


# Said by Slurm 24.11 with slurmctld or munged stopped, and with the job in another state.
SILENT = [
    "Unexpected message received for job 14",
    "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
    'scontrol: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2"',
    "slurm_load_jobs error: Protocol authentication error",
    "slurm_update error: Socket timed out on send/recv operation",
]
REFUSED = [
    "Requested operation is presently disabled for job 5",
    "Job is pending execution for job 14",
    "Invalid job id specified for job 9999",
    "Job is no longer pending execution for job 2",
    "Invalid node name specified for job 14",
    "Invalid user id for job 14\nslurm_suspend error: Invalid user id",
]


@pytest.mark.parametrize("said", SILENT)
async def test_what_is_silence(programs: Programs, said: str) -> None:
    programs.put("scontrol", f"cat >&2 <<'E'\n{said}\nE\nexit 1")
    with pytest.raises(SchedulerUnavailable):
        await scontrol.requeue_held(programs.runner(), "14", special_exit=True)


@pytest.mark.parametrize("said", REFUSED)
async def test_what_is_a_no(programs: Programs, said: str) -> None:
    programs.put("scontrol", f"cat >&2 <<'E'\n{said}\nE\nexit 1")
    with pytest.raises(RequeueFailed, match=said.split("\n")[0]):
        await scontrol.requeue_held(programs.runner(), "14", special_exit=True)


async def test_the_words_of_each_change(programs: Programs) -> None:
    programs.put("scontrol", f'printf "%s;" "$@" >> {programs.folder}/told')
    slurm = programs.slurm()
    await slurm.requeue_held("7", special_exit=True)
    await slurm.requeue_held("7", special_exit=False)
    await slurm.requeue("7")
    await slurm.release("7")
    await slurm.annotate("7", comment='a "b"', admin_comment="")
    await slurm.prepare_held("7", time_limit=61, excluded_nodes="n[1-2]", start_in=2, comment="")
    await slurm.prepare_held("7", time_limit=0, excluded_nodes="", start_in=-1, comment="c")
    assert (programs.folder / "told").read_text().split(";") == [
        "requeuehold", "State=SpecialExit", "7", "requeuehold", "7", "requeue", "7", "release", "7",
        "update", "JobId=7", 'Comment=a "b"', "AdminComment=",
        "update", "JobId=7", "ExcNodeList=n[1-2]", "TimeLimit=2", "StartTime=now+2",
        "update", "JobId=7", "ExcNodeList=", "Comment=c", "",
    ]  # fmt: skip


async def test_operators_are_asked_once(programs: Programs) -> None:
    programs.put("sacctmgr", f"echo x >> {programs.folder}/asked; echo Operator")
    slurm = programs.slurm()
    assert [await slurm.operator(name) for name in ("root", "olga", "olga")] == [True] * 3
    assert (programs.folder / "asked").read_text() == "x\n"
    programs.put("sacctmgr", "exit 1")
    with pytest.raises(SchedulerUnavailable):
        await slurm.operator("alice")
    programs.put("sacctmgr", "echo None")
    assert not await slurm.operator("alice")


UNKNOWN = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"


@pytest.mark.parametrize(
    ("private", "owner", "level", "hidden"),
    [
        ("none", "slurm(64030)", "None", False),
        ("jobs,usage", "slurm(64030)", "None", True),
        ("jobs", "slurm(64030)", "", True),  # the accounts were never read
        ("usage,jobs", "slurm(64030)", "Administrator", False),
        ("jobs", "slurm(64030)", "Operator", False),
        ("jobs", "nobody(65534)", "None", False),
    ],
)
async def test_a_job_that_is_hidden_is_not_gone(
    programs: Programs, monkeypatch: pytest.MonkeyPatch,
    private: str, owner: str, level: str, hidden: bool,
) -> None:  # fmt: skip
    """Slurm says of it what it says of a job that it does not know."""
    monkeypatch.setattr(os, "geteuid", lambda: pwd.getpwnam("nobody").pw_uid)
    user = f"UserName=nobody(65534) DefAccount=root DefWckey=(null) AdminLevel={level}"
    users = user if level else ""
    programs.put("squeue", UNKNOWN)
    programs.put(
        "scontrol",
        f"""case "$*" in
        "show config") echo 'PrivateData             = {private}'; echo 'SlurmUser = {owner}';;
        "-o show assoc_mgr users=nobody flags=users")
            echo 'Current Association Manager state'; echo 'User Records'; echo '{users}';;
        esac""",
    )
    if hidden:
        with pytest.raises(SchedulerUnavailable, match="hides jobs of others from nobody"):
            await programs.slurm().detail(7)
    else:
        assert await programs.slurm().detail(7) is None
    programs.put("scontrol", "exit 1")
    with pytest.raises(SchedulerUnavailable):
        await programs.slurm().detail(7)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10:00", 600), ("0:05", 5), ("1:00:00", 3600), ("1-02:04:00", 93840), ("7-0", 604800),
        ("UNLIMITED", 0), ("INVALID", 0), ("NOT_SET", 0), ("", 0), ("Partition_Limit", 0),
    ],
)  # fmt: skip
def test_times(text: str, value: int) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["x", "1:x", "1-"])
def test_what_is_no_time_is_no_answer(text: str) -> None:
    with pytest.raises(SchedulerUnavailable):
        seconds(text)
    with pytest.raises(SchedulerUnavailable):
        number(text)


def test_minutes_are_rounded_up() -> None:
    assert [scontrol.minutes(s) for s in (0, 1, 60, 61, 3600)] == ["1", "1", "1", "2", "60"]


def test_node_names() -> None:
    names = NodeSetNames()
    assert names.fold(["n2", "n1", "gpu7", "n3"]) == "gpu7,n[1-3]"
    assert names.fold([]) == ""
    assert names.expand("n[1-3],gpu7") == ("gpu7", "n1", "n2", "n3")
    assert names.expand("") == ()
    assert names.fold(["r1n1", "r1n2", "r2n1"]) == "r1n[1-2],r2n1"
    assert names.expand("@all,n1") == ("@all", "n1")
    with pytest.raises(SchedulerUnavailable):
        names.expand("n[1-")


async def test_whoever_asks_runs_no_more_of_them_than_the_host_can_bear(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the one query for the whole cluster waits for none of those."""
    monkeypatch.setattr(runner, "MOST_AT_ONCE", 4)
    work = tmp_path / "work"
    work.mkdir()
    programs.put("scontrol", f"touch {work}/$$; ls {work} | wc -l >> {tmp_path}/seen; sleep 0.1; "
                 f"rm {work}/$$")  # fmt: skip
    programs.put("squeue", "exit 0")
    one, slurm = programs.runner(), programs.slurm()
    slurm._runner = one
    asking = [asyncio.ensure_future(one.run("scontrol", "show")) for _ in range(14)]
    await asyncio.sleep(0.05)
    assert await slurm.jobs() == []
    assert not all(each.done() for each in asking)
    await asyncio.gather(*asking)
    counts = [int(line) for line in (tmp_path / "seen").read_text().split()]
    assert len(counts) == 14
    assert max(counts) <= 4


def test_a_job_with_a_name_that_is_no_utf8_is_told_apart_all_the_same() -> None:
    """As the runner hands it on: Slurm writes the byte as it is."""
    name = rb'"a\n\\x\u001b\"' + b"\xff" + rb'\\"'
    raw = b'{"jobs": [{"job_id": 7, "name": ' + name + b', "state_reason": "JobHeldUser"}]}'
    text = raw.decode("utf-8", "backslashreplace")
    assert squeue.state_reason(text, 7) == "JobHeldUser"
    with pytest.raises(SchedulerUnavailable, match="JSON"):
        squeue.state_reason(text[:-3], 7)
