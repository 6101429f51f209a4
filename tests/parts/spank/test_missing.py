# SPDX-License-Identifier: Apache-2.0
"""Something of ours is missing or fails: a fresh job starts as without us, a job with an image
never starts from scratch."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import SANITIZER, UID, init_of, wait_until

FRESH = {"mode": "fresh", "last_pid": 299}


def runs_unmanaged(bench, problem: str, **facts) -> None:
    task = bench.script("echo $PPID; readlink /proc/self/ns/mnt; exit 6", **facts)
    started = time.monotonic()
    assert task.status() == 6 << 8
    assert time.monotonic() - started < 14
    assert task.text().split() == [str(task.process.pid), os.readlink("/proc/self/ns/mnt")]
    assert problem in bench.note()
    assert f"job=77\nuid={UID}\n" in bench.note()
    assert "waits=0" in bench.note()


def test_no_socket(bench):
    runs_unmanaged(bench, "couldn't reach the agent")


def test_nobody_listens(bench):
    bench.agent(**FRESH).listener.shutdown(2)
    runs_unmanaged(bench, "Connection refused")


def test_agent_is_silent(bench):
    agent = bench.agent(**FRESH)
    agent._serve = lambda peer: time.sleep(30)
    runs_unmanaged(bench, "no answer from the agent: Connection timed out")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"mode": "dance"}, "names no mode"),
        ({"reason": "x"}, "names no mode"),
        ({"mode": "fresh", "private_tmp": "../x"}, "not a plain path"),
        ({"mode": "fresh", "last_pid": "99999999"}, "not a PID"),
        ({"mode": "fresh", "block_io_uring": "2"}, "not 0 or 1"),
    ],
)
def test_answer_makes_no_sense(bench, answer, problem):
    bench.agent(**answer)
    runs_unmanaged(bench, problem)


def test_no_libexec(bench):
    bench.agent(**FRESH)
    shutil.rmtree(bench.libexec)
    runs_unmanaged(bench, "reclaim-init: No such file")


def test_init_not_executable(bench):
    bench.agent(**FRESH)
    (bench.libexec / "reclaim-init").chmod(0o644)
    runs_unmanaged(bench, "is not a program")


def test_init_that_users_could_write(bench):
    bench.agent(**FRESH)
    (bench.libexec / "reclaim-init").chmod(0o777)
    runs_unmanaged(bench, "others than root can write")


@pytest.mark.parametrize("text", ["#!/bin/sh\nexit 1\n", "no program\n", "#!/bin/sh\nsleep 60\n"])
def test_init_fails(bench, text):
    bench.agent(**FRESH)
    (bench.libexec / "reclaim-init").write_text(text)
    runs_unmanaged(bench, "reclaim-init did not get ready")


def test_mount_fails(bench):
    """private_tmp below a file: reclaim-init says why, and the job does not notice."""
    (bench.base / "file").write_text("")
    bench.agent(**{**FRESH, "private_tmp": bench.base / "file/x"})
    runs_unmanaged(bench, "Not a directory")


def test_relay_missing_is_no_reason(bench):
    """The relay's loop then runs where it is."""
    agent = bench.agent(**FRESH)
    (bench.libexec / "reclaim-relay").unlink()
    task = bench.script("echo $$; sleep 0.5; exit 6")
    agent.attached(77)
    assert task.status() == 6 << 8
    assert task.text() == "300\n"


def image(bench, name: str = f"77.{UID}.1600000000", number: str = "3") -> None:
    folder = bench.base / "store/lab" / name / number
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")


def plugin_conf(bench, **more: str) -> None:
    recorder = bench.base / "scontrol"
    recorder.write_text(
        f'#!/bin/sh\necho "$@" >> {bench.base}/scontrol.log; env >> {bench.base}/env\n'
    )
    recorder.chmod(0o755)
    values = {"store": bench.base / "store", "cluster": "lab", "restore_wait": 1,
              "scontrol": recorder, "held_state": "SpecialExit", **more}  # fmt: skip
    (bench.state / "plugin.conf").write_text("".join(f"{k}={v}\n" for k, v in values.items()))
    store = bench.base / "store"
    store.mkdir(exist_ok=True)
    (store / ".slurm-reclaim-store").touch()


def asked(bench) -> str:
    path = bench.base / "scontrol.log"
    return path.read_text() if path.exists() else ""


def parked(bench, wait: float = 12, **facts) -> None:
    task = bench.script("echo started", restarts=1, **facts)
    wait_until(lambda: "requeuehold" in asked(bench), wait)
    assert task.process.poll() is None
    os.kill(task.pid, signal.SIGCONT)
    os.kill(task.pid, signal.SIGTERM)
    assert task.status() == signal.SIGTERM
    assert task.text() == ""


@pytest.mark.parametrize("number", ["3", ".replaced-3"])
def test_image_and_no_agent(bench, number):
    image(bench, number=number)
    plugin_conf(bench)
    parked(bench)
    assert asked(bench) == "update JobId=77 Requeue=1\nrequeuehold State=SpecialExit 77\n"
    lines = (bench.base / "env").read_text().split("\n")
    assert {line.split("=")[0] for line in lines if line} <= {
        "PATH",
        "LANG",
        "PWD",
        "SHLVL",
        "_",
        "OLDPWD",
    }
    assert "problem=couldn't reach the agent" in bench.note()
    assert "waits=1" in bench.note()


@pytest.mark.parametrize("session", [True, False])
def test_the_last_task_of_an_array(bench, session):
    """Its number is that of the array, by which Slurm would requeue every task of it. The name is
    Slurm's: one that the owner puts into the environment may be that of anybody's job."""
    image(bench)
    plugin_conf(bench)
    if not session:
        (bench.libexec / "reclaim-init").unlink()
    env = {"SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "6"}
    parked(bench, array="77_4", env=env)
    assert asked(bench) == "update JobId=77_4 Requeue=1\nrequeuehold State=SpecialExit 77_4\n"


def test_session_of_a_guessed_restore(bench):
    """What the agent would have answered is in plugin.conf, too."""
    image(bench)
    (bench.base / "tmp").mkdir()
    plugin_conf(bench, restore_wait="30", private_tmp=bench.base / "tmp", block_io_uring="1")
    task = bench.script("echo started", restarts=1)
    agent = bench.agent()
    agent.attached(77)
    init = init_of(task)
    assert (bench.base / "tmp/slurm-reclaim-77/tmp").is_dir()
    assert "/tmp/slurm-reclaim-77/tmp /tmp " in Path(f"/proc/{init}/mountinfo").read_text()
    assert "Seccomp:\t2" in Path(f"/proc/{task.pid}/status").read_text()
    done = subprocess.run(
        [bench.libexec / "reclaim-exec", "--join", f"{init}:mnt,pid", "--", "/bin/sh", "-c",
         "echo $$"], capture_output=True, text=True, timeout=10,
    )  # fmt: skip
    assert int(done.stdout) > int(Path("/proc/sys/kernel/pid_max").read_text()) // 4 * 3


def test_plain_hold_where_the_site_wants_it(bench):
    image(bench)
    plugin_conf(bench, held_state="")
    parked(bench)
    assert "requeuehold 77\n" in asked(bench)


def test_agent_comes_in_time(bench):
    image(bench)
    plugin_conf(bench, restore_wait="30")
    task = bench.script("echo started", restarts=1)
    time.sleep(1)
    agent = bench.agent()
    assert agent.attached(77)["mode"] == "restore"
    assert asked(bench) == ""
    assert task.process.poll() is None


def test_agent_lost_while_a_restore_is_awaited(bench):
    plugin_conf(bench)
    agent = bench.agent(mode="restore", last_pid=20000)
    task = bench.script("echo started", restarts=1)
    agent.attached(77)
    time.sleep(1.5)
    assert asked(bench) == ""
    agent.close()
    wait_until(lambda: "requeuehold" in asked(bench))
    assert task.text() == ""


@pytest.mark.parametrize("break_it", ["libexec", "init"])
def test_image_and_no_session(bench, break_it):
    """Neither agent nor namespaces: still not from scratch."""
    image(bench)
    plugin_conf(bench)
    if break_it == "libexec":
        shutil.rmtree(bench.libexec)
    else:
        (bench.libexec / "reclaim-init").write_text("#!/bin/sh\nexit 1\n")
    parked(bench)


def test_a_store_without_its_marker_may_be_unmounted(bench):
    """An empty mount point does not say that there is no image."""
    plugin_conf(bench)
    (bench.base / "store/.slurm-reclaim-store").unlink()
    parked(bench)


def test_agent_says_restore_and_no_session(bench):
    plugin_conf(bench)
    bench.agent(mode="restore", last_pid=20000)
    shutil.rmtree(bench.libexec)
    parked(bench)
    assert "reclaim-init: No such file" in bench.note()


@pytest.mark.parametrize("libexec", [True, False])
def test_first_run_has_no_image(bench, libexec):
    """Job ids are reused: what lies there is an older job's."""
    image(bench)
    plugin_conf(bench)
    if not libexec:
        shutil.rmtree(bench.libexec)
    task = bench.script("echo started; exit 8")
    assert task.status() == 8 << 8
    assert task.text() == "started\n"
    assert asked(bench) == ""


@pytest.mark.parametrize(
    ("name", "number"),
    [(f"78.{UID}.1", "1"), ("77.1.1", "1"), (f"77.{UID}", "1"), (f"77.{UID}.1", "tmp-1"),
     (f"770.{UID}.1", "1")],
)  # fmt: skip
def test_images_of_others_do_not_count(bench, name, number):
    image(bench, name, number)
    plugin_conf(bench)
    runs_unmanaged(bench, "couldn't reach the agent", restarts=1)


def test_unfinished_image_does_not_count(bench):
    image(bench)
    plugin_conf(bench)
    next((bench.base / "store").rglob("manifest.json")).unlink()
    runs_unmanaged(bench, "couldn't reach the agent", restarts=1)


def test_store_that_cannot_be_read_parks_a_restarted_job(bench):
    plugin_conf(bench)
    shutil.rmtree(bench.base / "store")
    parked(bench)
    assert f"couldn't look for images in {bench.base}/store" in bench.note()


FAILING = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct dirent *readdir(DIR *dir)
{
	static struct dirent *(*real)(DIR *);
	const char *fails = getenv("READDIR_FAILS");
	char link[64], path[4096] = "";
	ssize_t length;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd(dir));
	length = readlink(link, path, sizeof(path) - 1);
	path[length > 0 ? length : 0] = '\0';
	if (fails != NULL && strcmp(path, fails) == 0) {
		errno = EIO;
		return NULL;
	}
	if (real == NULL)
		real = (struct dirent *(*)(DIR *))dlsym(RTLD_NEXT, "readdir");
	return real(dir);
}
"""


@pytest.mark.parametrize("place", ["store/lab", f"store/lab/77.{UID}.1600000000"])
def test_store_that_fails_while_it_is_read_parks_a_restarted_job(bench, place):
    """Opened it was: what comes after is no end of the directory, and says nothing of images."""
    shim = bench.base / "failing.so"
    subprocess.run(
        [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-x", "c", "-", "-o", shim, "-ldl"],
        input=FAILING, text=True, check=True,
    )  # fmt: skip
    image(bench)
    plugin_conf(bench)
    env = {
        "LD_PRELOAD": str(shim), "READDIR_FAILS": str(bench.base / place),
        "ASAN_OPTIONS": f"{SANITIZER['ASAN_OPTIONS']}:verify_asan_link_order=0",
    }  # fmt: skip
    task = bench.script("echo started", restarts=1, env=env)
    wait_until(lambda: "requeuehold" in asked(bench), 12)
    assert task.text() == ""
    assert f"couldn't look for images in {bench.base}/store" in bench.note()


@pytest.mark.parametrize("mode", [0o666, 0o620])
def test_plugin_conf_that_others_can_write(bench, mode):
    """It can't be trusted, so it can't say that there is no image either."""
    plugin_conf(bench)
    (bench.state / "plugin.conf").chmod(mode)
    task = bench.script("echo started", restarts=1)
    time.sleep(1)
    assert task.text() == ""
    assert "not a file that only root can write" in bench.note()


def test_note_is_roots_alone(bench):
    runs_unmanaged(bench, "couldn't reach the agent")
    path = bench.run / "missed"
    assert path.stat().st_mode & 0o777 == 0o700
    assert (path / "77").stat().st_mode & 0o777 == 0o600
    assert [p.name for p in Path(path).iterdir()] == ["77"]
