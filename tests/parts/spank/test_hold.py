# SPDX-License-Identifier: Apache-2.0
"""The agent's orders to reclaim-init: hold, unhold, root, end; and an agent that comes and goes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

from conftest import UID, init_of, wait_until

FRESH = {"mode": "fresh", "last_pid": 299}


def inside(bench, init: int, text: str) -> int:
    """Starts a process in the session whose parent ends at once, as CRIU does it.
    Returns its PID there."""
    out = subprocess.run(
        [bench.libexec / "reclaim-exec", "--join", f"{init}:mnt,pid", "--uid", str(UID), "--gid",
         str(UID), "--", "/bin/bash", "-c",
         f"setsid bash -c '{text}' </dev/null >/dev/null & echo $!"],
        check=True, stdout=subprocess.PIPE, text=True, timeout=10,
    )  # fmt: skip
    return int(out.stdout)


def session_path(init: int, path: str) -> Path:
    """As the session's own processes have it."""
    return Path(f"/proc/{init}/root{path}")


def alive(task) -> bool:
    return Path(f"/proc/{task.pid}/cmdline").read_bytes() != b"" and task.process.poll() is None


def held(bench, text="sleep 60", **answer):
    agent = bench.agent(**{**FRESH, **answer})
    task = bench.script(text)
    hello = agent.attached(77)
    assert agent.order(77, cmd="hold") == {"cmd": "hold", "ok": "1"}
    return agent, task, int(hello["child"]), init_of(task)


def kill_tree(agent, child: int) -> None:
    os.kill(child, signal.SIGKILL)
    assert agent.ended() == signal.SIGKILL


def test_unhold_before_the_end_changes_nothing(bench):
    agent, task, _, _ = held(bench, "sleep 1; exit 5")
    agent.order(77, cmd="unhold")
    assert task.status() == 5 << 8


def test_held_job_outlives_its_tree_until_sigterm(bench):
    agent, task, child, _ = held(bench)
    kill_tree(agent, child)
    for number in (signal.SIGCONT, signal.SIGUSR1, signal.SIGINT):
        os.kill(task.pid, number)
    time.sleep(0.3)
    assert alive(task)
    os.kill(task.pid, signal.SIGTERM)
    assert task.status() == signal.SIGTERM


def test_unhold_gives_the_status_that_was(bench):
    agent, task, child, _ = held(bench)
    kill_tree(agent, child)
    agent.order(77, cmd="unhold")
    assert task.status() == signal.SIGKILL


def test_end_with_any_status(bench):
    agent, task, child, _ = held(bench)
    kill_tree(agent, child)
    agent.order(77, cmd="end", status=7 << 8)
    assert task.status() == 7 << 8


def test_tree_restored_in_place(bench):
    agent, task, child, init = held(bench)
    kill_tree(agent, child)
    root = inside(bench, init, "trap \"echo usr1\" USR1; while ! read -t 0.1 < <(:); do sleep 0.1; "
                  "[ -e /dev/shm/end ] && exit 9; done")  # fmt: skip
    assert agent.order(77, cmd="root", pid=root) == {"cmd": "root", "ok": "1"}
    time.sleep(0.3)
    assert alive(task)
    subprocess.run([bench.libexec / "reclaim-exec", "--join", f"{init}:mnt", "--",
                    "/usr/bin/touch", "/dev/shm/end"], check=True)  # fmt: skip
    seen = len(agent.events)
    assert task.status() == 9 << 8
    assert agent.ended(after=seen - 1 if seen else 0) is not None


def test_signals_go_to_the_restored_root(bench):
    agent, task, child, init = held(bench)
    kill_tree(agent, child)
    root = inside(
        bench, init, 'trap "exit 11" TERM; touch /dev/shm/traps; while :; do sleep 0.05; done'
    )
    agent.order(77, cmd="root", pid=root)
    wait_until(session_path(init, "/dev/shm/traps").exists)
    os.kill(task.pid, signal.SIGTERM)
    assert task.status() == 11 << 8


def test_root_that_died_before_it_was_named(bench):
    agent, task, child, init = held(bench)
    kill_tree(agent, child)
    root = inside(bench, init, "exit 13")
    wait_until(lambda: not session_path(init, f"/proc/{root}").exists())
    assert agent.order(77, cmd="root", pid=root)["ok"] == "1"
    assert task.status() == 13 << 8


def test_wrong_orders_are_refused_in_words(bench):
    agent, task, _, _ = held(bench)
    assert agent.order(77, cmd="root", pid=299)["error"] == "299 is no child of reclaim-init"
    assert agent.order(77, cmd="root", pid=300)["ok"] == "0"
    assert agent.order(77, cmd="root", pid="x")["error"] == "pid is missing or no PID"
    assert agent.order(77, cmd="end")["ok"] == "0"
    assert agent.order(77, cmd="dance")["error"] == "unknown command"
    assert alive(task)


def test_agent_restarts_and_is_told_what_it_needs(bench):
    agent, task, child, _ = held(bench)
    agent.close()
    os.kill(child, signal.SIGKILL)
    time.sleep(1.2)
    assert alive(task)
    again = bench.agent(**FRESH)
    hello = again.attached(77)
    assert (hello["held"], hello["root"], hello["child"]) == ("1", "0", str(child))
    assert again.ended() == signal.SIGKILL
    again.order(77, cmd="unhold")
    assert task.status() == signal.SIGKILL


def test_agent_that_refuses_is_asked_again(bench):
    agent = bench.agent(**FRESH)
    task = bench.script("sleep 60")
    agent.attached(77)
    seen = len(agent.events)
    agent.sessions["77"].sock.shutdown(2)
    agent.attached(77, after=seen)
    assert alive(task)


def test_garbage_from_the_agent_drops_the_connection_only(bench):
    agent = bench.agent(**FRESH)
    task = bench.script("sleep 60")
    agent.attached(77)
    for junk in (b"\0\0\0\n\n", b"x" * 70000, b"\n\n\n", b"cmd=%\n\n"):
        seen = len(agent.events)
        with contextlib.suppress(OSError):
            agent.sessions["77"].sock.sendall(junk)
        agent.attached(77, after=seen)
    assert alive(task)
    assert agent.order(77, cmd="hold")["ok"] == "1"


def test_a_socket_that_is_not_roots_is_not_spoken_to(bench):
    text = (
        "import os,socket,sys; s=socket.socket(socket.AF_UNIX); os.setuid(int(sys.argv[2]));"
        "s.bind(sys.argv[1]); s.listen(9); print('up',flush=True); s.accept()[0].recv(9)"
    )
    os.chmod(bench.base, 0o777)
    impostor = subprocess.Popen(
        ["/usr/bin/python3", "-c", text, bench.socket, str(UID)], stdout=subprocess.PIPE
    )
    try:
        impostor.stdout.readline()
        task = bench.script("echo $PPID")
        assert task.status() == 0
        assert task.text() == f"{task.process.pid}\n"
        assert f"held by uid {UID}, not root" in bench.note()
    finally:
        impostor.kill()
        impostor.wait()


def test_restore_starts_nothing(bench):
    agent = bench.agent(mode="restore", last_pid=20000)
    task = bench.script("echo started", restarts=1)
    hello = agent.attached(77)
    assert (hello["mode"], hello["child"], hello["restarts"]) == ("restore", "0", "1")
    root = inside(bench, init_of(task), "sleep 0.5; exit 21")
    assert root > 20000
    assert agent.order(77, cmd="root", pid=root)["ok"] == "1"
    assert task.status() == 21 << 8
    assert "started" not in task.text()


def test_restore_waits_until_sigterm(bench):
    agent = bench.agent(mode="restore", last_pid=20000)
    task = bench.script("echo started", restarts=1)
    agent.attached(77)
    os.kill(task.pid, signal.SIGCONT)
    os.kill(task.pid, signal.SIGTERM)
    assert task.status() == signal.SIGTERM
    assert task.text() == ""


def test_reports_the_root_when_it_attaches_again(bench):
    agent = bench.agent(mode="restore", last_pid=20000)
    task = bench.script("echo started", restarts=1)
    agent.attached(77)
    root = inside(bench, init_of(task), "sleep 60")
    agent.order(77, cmd="root", pid=root)
    agent.close()
    again = bench.agent(mode="restore")
    assert again.attached(77)["root"] == str(root)
    wait_until(lambda: alive(task))
