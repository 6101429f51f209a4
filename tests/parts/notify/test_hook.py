"""Hooks are real programs here, good ones and bad ones."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from slurm_reclaim.adapters.notify.notices import Notices
from slurm_reclaim.model.notice import Channel

from .conftest import Make, deliver, notice


@pytest.fixture
def hooks(tmp_path: Path) -> Path:
    folder = tmp_path / "hooks"
    folder.mkdir()
    return folder


def put(folder: Path, name: str, script: str, mode: int = 0o755) -> Path:
    path = folder / name
    path.write_text(script if script.startswith("#!") else f"#!/bin/bash\n{script}\n")
    path.chmod(mode)
    return path


async def outcomes(make: Make, **more: object) -> dict[str, str]:
    """Hook -> its error, "" where it was ok."""
    found = await deliver(make(channels=["hook"], **more))
    assert all(d.channel is Channel.HOOK and d.ok == (not d.error) for d in found)
    assert [d.to for d in found] == sorted(d.to for d in found)
    return {d.to: d.error for d in found}


async def test_what_a_hook_gets(make: Make, hooks: Path, tmp_path: Path) -> None:
    os.environ["SECRET_OF_THE_DAEMON"] = "x"
    seen = tmp_path / "seen"
    put(hooks, "10-keep", f'cat > {seen}; env > {seen}.env; echo "$#:$PWD" > {seen}.args\n'
        f'echo $(cut -d " " -f 5 /proc/$$/stat) $$ > {seen}.group\n'
        f'ls /proc/self/fd > {seen}.fds')  # fmt: skip
    name = "$(touch /tmp/evil)`x`\n\x1b[2J\udcff" + "y" * 300
    found = await deliver(make(channels=["hook"]), notice(job_name=name, user=name))
    assert [(d.to, d.ok, d.error) for d in found] == [("10-keep", True, "")]
    said = json.loads(seen.read_text())
    assert said["job_name"] == name.replace("\udcff", "\\udcff")
    assert said["kind"] == "warning"
    env = dict(line.split("=", 1) for line in Path(f"{seen}.env").read_text().splitlines())
    assert {key: env[key] for key in env if key not in ("PWD", "SHLVL", "_")} == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C.UTF-8",
        "RECLAIM_NOTICE": "warning",
    }
    assert Path(f"{seen}.args").read_text() == "0:/\n"
    group, pid = Path(f"{seen}.group").read_text().split()
    assert group == pid
    assert set(Path(f"{seen}.fds").read_text().split()) <= {"0", "1", "2", "3"}  # 3: ls's own
    del os.environ["SECRET_OF_THE_DAEMON"]


async def test_exit_status_and_last_line(make: Make, hooks: Path) -> None:
    put(hooks, "a", "exit 0")
    put(hooks, "b", "echo first; echo 'not\x1b[2J found' >&2; exit 3")
    put(hooks, "c", "kill -9 $$")
    put(hooks, "d", "#!/no/such/program\n")
    put(hooks, "e", "exit 1")
    (hooks / "f").write_bytes(b"\x00\x01")
    (hooks / "f").chmod(0o755)
    assert await outcomes(make) == {
        "a": "",
        "b": "exit status 3: not?[2J found",
        "c": "killed by signal 9",
        "d": "can't be run: No such file or directory",
        "e": "exit status 1",
        "f": "can't be run: Exec format error",
    }


async def test_one_that_hangs_is_killed_with_what_it_started(make: Make, hooks: Path) -> None:
    mark = f"8{os.getpid()}"
    put(hooks, "hang", f"trap '' TERM; echo waiting; sleep {mark} & sleep {mark}")
    put(hooks, "well", "exit 0")
    found = await outcomes(make, timeout=3.0)
    assert found == {"hang": "killed after 3 s: waiting", "well": ""}
    await asyncio.sleep(0.2)
    assert not running(f"sleep {mark}")


def running(command: str) -> bool:
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if entry.read_bytes().replace(b"\0", b" ").strip() == command.encode():
                return True
        except OSError:
            continue
    return False


async def test_a_daemon_that_keeps_the_output_open_is_not_waited_for(
    make: Make, hooks: Path
) -> None:
    pids = [hooks.parent / "1", hooks.parent / "2"]
    put(hooks, "daemon", f"echo started; sleep 600 & echo $! > {pids[0]}; exit 0")
    put(hooks, "failed", f"echo no; sleep 600 & echo $! > {pids[1]}; exit 1")
    found = await outcomes(make, timeout=20.0)
    for pid in pids:
        os.kill(int(pid.read_text()), signal.SIGKILL)  # still there: it is nobody's business
    assert found == {"daemon": "", "failed": "exit status 1: no"}


async def test_much_output_and_unread_input_keep_nobody_waiting(make: Make, hooks: Path) -> None:
    put(hooks, "loud", "head -c 30000000 /dev/zero | tr '\\0' 'x'; echo; echo the end; exit 1")
    put(hooks, "one-line", "head -c 3000000 /dev/zero | tr '\\0' 'x'; exit 1")
    put(hooks, "deaf", "exec <&-; exit 0")
    put(hooks, "endless", "yes")
    found = await outcomes(make, timeout=3.0)
    assert found.pop("one-line").startswith("exit status 1: xxx")
    assert found == {
        "loud": "exit status 1: the end", "deaf": "", "endless": "killed after 3 s: y",
    }  # fmt: skip


async def test_what_others_can_change_is_not_run(make: Make, hooks: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    for name, mode in (("group", 0o775), ("world", 0o757)):
        put(hooks, name, f"touch {ran}", mode)
    os.chown(put(hooks, "owner", f"touch {ran}"), 4711, -1)
    outside = tmp_path / "outside"
    outside.mkdir()
    (hooks / "link").symlink_to(put(outside, "theirs", f"touch {ran}"))
    outside.chmod(0o777)
    (hooks / "dangling").symlink_to("/no/such/file")
    (hooks / "loop").symlink_to("loop")
    found = await outcomes(make)
    assert not ran.exists()
    for name, culprit in (
        ("group", hooks / "group"), ("world", hooks / "world"), ("owner", hooks / "owner"),
        ("link", outside),
    ):  # fmt: skip
        assert found[name] == f"not run: others than root can change {culprit}"
    assert found["dangling"] == "not run: No such file or directory"
    assert "not run" in found["loop"]


async def test_a_directory_that_others_can_change_has_no_hook_to_run(
    make: Make, hooks: Path, tmp_path: Path
) -> None:
    put(hooks, "good", f"touch {tmp_path}/ran")
    hooks.chmod(0o777)
    found = await outcomes(make)
    assert found == {"good": f"not run: others than root can change {hooks}"}
    assert not (tmp_path / "ran").exists()


async def test_names_as_run_parts_has_them(make: Make, hooks: Path) -> None:
    for name in ("10-chat", "b_2", "c.sh", "d.dpkg-old", "e~", ".f", "g h"):
        put(hooks, name, "exit 0")
    put(hooks, "plain-file", "exit 1", 0o644)
    (hooks / "directory").mkdir()
    assert await outcomes(make) == {"10-chat": "", "b_2": ""}


async def test_no_hook_is_no_delivery(make: Make, hooks: Path) -> None:
    (done,) = await deliver(make(channels=["hook"]))
    assert (done.ok, done.error) == (False, f"{hooks} has no hook in it")
    hooks.rmdir()
    (done,) = await deliver(make(channels=["hook"]))
    assert (done.ok, done.error) == (False, f"{hooks}: No such file or directory")


async def test_channels_that_are_not_wanted_this_time_are_not_tried(
    make: Make, hooks: Path, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    put(hooks, "10-keep", f"cat > {seen}")
    notices = Notices(lambda: make(channels=["hook", "mail"], smtp_port=1))
    found = await notices.deliver(notice(), ["mail", "terminal"])
    assert [d.channel for d in found] == [Channel.MAIL]
    assert not seen.exists()
    found = await notices.deliver(notice(), ["hook", "webhook"])
    assert [(d.channel, d.ok) for d in found] == [(Channel.HOOK, True)]


async def test_hooks_run_side_by_side(make: Make, hooks: Path) -> None:
    """Each waits until all have started."""
    for name in "abcd":
        wait = f"until [ -e {hooks.parent}/${{all}} ]; do sleep 0.05; done"
        put(hooks, name, f"touch {hooks.parent}/{name}; for all in a b c d; do {wait}; done")
    assert set((await outcomes(make, timeout=20.0)).values()) == {""}


async def test_no_descriptor_is_left(make: Make, hooks: Path) -> None:
    put(hooks, "a", "exit 0")
    put(hooks, "b", "#!/no/such\n")
    await outcomes(make)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await outcomes(make)
    await asyncio.sleep(0.1)
    assert len(os.listdir("/proc/self/fd")) == before
