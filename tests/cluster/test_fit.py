"""What a session needs of a node is looked at before anything starts, and named."""

from __future__ import annotations

import shlex
import time

import pytest

from tests.cluster.sessions import Counter, only, processes

pytestmark = pytest.mark.cluster
HOME = "/shared/home/alice"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"


def alice(lab, command: str) -> str:
    done = lab.exec("ctl", "sh", "-ec", f"cd {HOME}; {command}", user="alice")
    return done.stdout.strip()


def refused(job: Counter, *words: str) -> str:
    """Why a restore came to nothing; the checkpoint is kept, the job held, nothing was started."""
    done = job.reclaim("restore", *words, check=False)
    assert done.returncode == 42, done.stderr
    session = job.wait_for_session("HIBERNATED")
    assert session["checkpoint"]["restarts"] == 0
    job.lab.wait("it to be held", lambda: job.squeue("%T") == "SPECIAL_EXIT", 30)
    assert "session-restored" not in job.kinds()
    left = processes(job.lab, session["last_node"])
    assert [line for line in left if f"count-{job.job}" in line] == []
    return done.stderr


def test_every_file_that_changed_is_named_before_anything_starts(lab, opener):
    alice(
        lab,
        f"rm -f *.so data.bin gone.txt part.txt; cp {LIBRARIES}/libz.so.1 ours.so;"
        "echo once > data.bin; echo here > gone.txt; echo begun > part.txt; chmod 600 gone.txt",
    )
    job = opener("r+:data.bin", "r:gone.txt", "a:part.txt", "lib:./ours.so")
    before = job.seen()
    job.reclaim("hibernate")
    alice(
        lab,
        f"cp {LIBRARIES}/libexpat.so.1 new.so; mv ours.so old.so; mv new.so ours.so;"
        "echo twice >> data.bin; rm gone.txt; echo more >> part.txt",
    )
    said = refused(job)
    assert "3 files changed while the session slept" in said
    assert f"{HOME}/data.bin: 5 bytes then, 11 now" in said
    assert f"{HOME}/gone.txt: gone (5 bytes then)" in said
    assert f"{HOME}/ours.so: another build: build-id " in said
    assert "part.txt" not in said, "who only appends does not mind"
    assert f"reclaim restore {job.job} --accept-changed {HOME}/data.bin" in said
    # its owner's word is enough for what only has another size
    said = refused(
        job, "--accept-changed", f"{HOME}/data.bin", "--accept-changed", f"{HOME}/ours.so"
    )
    assert "data.bin" not in said
    assert "2 files changed" in said
    alice(lab, "mv old.so ours.so; echo here > gone.txt; chmod 600 gone.txt")
    job.reclaim("restore", "--accept-changed", f"{HOME}/data.bin")
    after = job.counts_on()
    assert (after.pid, after.memory) == (before.pid, True)
    told = lab.out("ctl", "reclaim", "events", str(job.job))
    assert "data.bin: 5 bytes then, 11 now" in told
    assert "part.txt: 6 bytes then, 11 now" in told
    # the checkpoint's own images were not touched: it can be restored again as it was made
    job.reclaim("hibernate")
    job.reclaim("restore")
    assert job.counts_on().pid == before.pid


MAKE = """
import sqlite3
d = sqlite3.connect("history.sqlite"); d.execute("create table t(a)"); d.commit()
"""
GROW = """
import sqlite3
d = sqlite3.connect("history.sqlite")
d.executemany("insert into t values(?)", [("x" * 99,)] * 999); d.commit()
"""
USE = """
import sqlite3
kept.append(sqlite3.connect("history.sqlite")); kept[-1].execute("select * from t").fetchall()
"""


def test_what_the_site_calls_harmless_is_no_hindrance(lab, opener):
    alice(lab, f"rm -f history.sqlite notes.log; python3 -c {shlex.quote(MAKE)}")
    job = opener(f"py:{USE}", "w:notes.log")
    job.reclaim("hibernate")
    alice(lab, f"python3 -c {shlex.quote(GROW)}; echo by another >> notes.log")
    job.reclaim("restore")
    job.counts_on()
    told = lab.out("ctl", "reclaim", "events", str(job.job))
    assert "history.sqlite" in told
    assert "notes.log" in told


def test_code_without_a_build_id_is_known_by_its_content(lab, opener):
    edit = "python3 -c \"d = open('plain.so', 'rb').read(); {}; open('plain.so', 'wb').write(d)\""
    alice(lab, f"rm -f plain.so; cp {LIBRARIES}/libz.so.1 plain.so; "
          + edit.format("d = d.replace(b'GNU\\0', b'XNU\\0')"))  # fmt: skip
    job = opener("lib:./plain.so")
    job.reclaim("hibernate")
    alice(lab, "cp plain.so kept.so; "
          + edit.format("at = d.index(b'deflate 1.'); d = d[:at] + b'D' + d[at + 1:]"))  # fmt: skip
    said = refused(job)
    assert "plain.so: a program or library with other content" in said
    assert "--accept-changed" not in said.split("hint:")[0]
    alice(lab, "cp kept.so plain.so")
    job.reclaim("restore")
    job.counts_on()


def test_a_mode_that_changed_and_names_that_are_no_utf8(lab, opener):
    alice(lab, "rm -f odd* mode.txt; echo x > mode.txt; printf x > \"$(printf 'odd\\377')\"")
    job = opener("r:mode.txt", "py:kept.append(open(b'odd\\xff', 'r+b'))")
    job.reclaim("hibernate")
    alice(lab, "chmod 640 mode.txt; printf y >> \"$(printf 'odd\\377')\"")
    said = refused(job)
    assert f"{HOME}/mode.txt: mode 0644 then, 0640 now" in said
    assert "odd\\xff: 1 bytes then, 2 now" in said
    alice(lab, "chmod 644 mode.txt; printf x > \"$(printf 'odd\\377')\"")
    job.reclaim("restore")
    job.counts_on()


def test_a_taken_port_is_seen_first_and_the_next_node_has_it_free(lab, opener):
    with only(lab, "n1"):
        job = opener("tcp:127.0.0.1:17171", "tcp:0.0.0.0:17172")
        job.reclaim("hibernate")
    taker = "import socket, time; s = socket.create_server(('0.0.0.0', 17171)); time.sleep(600)"
    lab.exec("n1", "sh", "-c", f'python3 -c "{taker}" >/dev/null 2>&1 & echo $! > /run/taker')
    try:
        lab.wait("the port", lambda: ":17171" in lab.out("n1", "ss", "-Htln"))
        with only(lab, "n1"):
            said = refused(job)
        assert "not restored on n1: port tcp/127.0.0.1:17171 is taken" in said
        assert "17172" not in said
        assert job.session()["bad_nodes"] == ["n1"]
        job.reclaim("restore")
        assert job.counts_on().node == "n2"
        assert "17172" in lab.out("n2", "ss", "-Htln")
    finally:
        lab.exec("n1", "sh", "-c", "kill $(cat /run/taker)")


def test_memory_is_looked_at_before_it_is_used(lab, opener):
    job = opener("mib:150", options=("--mem=400M",))
    job.reclaim("hibernate")
    lab.exec("ctl", "scontrol", "update", f"JobId={job.job}", "MinMemoryNode=100")
    said = refused(job)
    assert "of memory more, the checkpoint needs 15" in said
    lab.exec("ctl", "scontrol", "update", f"JobId={job.job}", "MinMemoryNode=400")
    job.reclaim("restore")
    job.counts_on()


def test_a_cpu_without_a_feature_is_left_out(lab, opener):
    """The node tells of a CPU as its kernel shows it: without avx2 on n2."""
    job = opener()
    job.reclaim("hibernate")
    lab.exec(
        "n2", "sh", "-ec",
        "sed 's/ avx2 / /' /proc/cpuinfo > /run/cpuinfo; mount --bind /run/cpuinfo /proc/cpuinfo",
    )  # fmt: skip
    try:
        lab.restart_daemon("n2", "reclaim-agent")
        lab.wait("the news", lambda: job.excluded == ("n2",), 40)
        with only(lab, "n2"):
            # n1 fits, but takes no jobs now: it waits rather than run into SIGILL
            job.reclaim("restore", "--no-wait")
            time.sleep(5)
            assert job.squeue("%T") == "PENDING"
        assert job.wait_for_session("ACTIVE")["node"] == "n1"
        job.counts_on()
    finally:
        lab.exec("n2", "umount", "/proc/cpuinfo")
        lab.restart_daemon("n2", "reclaim-agent")


def test_a_file_system_that_is_not_mounted_is_named(lab, opener):
    lab.exec("n1", "sh", "-c", "mkdir -p /shared/data; chown alice /shared/data")
    for node in ("n1", "n2"):
        lab.exec(node, "sh", "-c", "mkdir -p /data; mount --bind /shared/data /data")
    try:
        lab.exec("n1", "sh", "-c", "echo x > /data/set; chown alice /data/set", user="alice")
        with only(lab, "n1"):
            job = opener("r:/data/set")
            job.reclaim("hibernate")
        for node in ("n1", "n2"):
            lab.exec(node, "umount", "/data")
        time.sleep(6)  # three reports: before, a restore would be tried on what they said last
        done = lab.wait(
            "no node that fits",
            lambda: (d := job.reclaim("restore", "--no-wait", check=False)).returncode == 20 and d,
        )
        assert "n1: it has no /data (ext4) mounted; n2: it has no /data (ext4)" in done.stderr
        lab.exec("n2", "mount", "--bind", "/shared/data", "/data")
        lab.wait(
            "n2 to fit",
            lambda: job.reclaim("restore", "--no-wait", check=False).returncode == 0,
        )
        assert job.wait_for_session("ACTIVE")["node"] == "n2"
        job.counts_on()
    finally:
        job.cancel()
        for node in ("n1", "n2"):
            lab.exec(node, "umount", "-l", "/data", check=False)


def test_several_restores_on_one_node_at_the_same_second(lab, opener):
    jobs = [opener(f"tcp:127.0.0.1:{18180 + number}", "mib:20") for number in range(4)]
    before = [job.seen() for job in jobs]
    for job in jobs:
        job.reclaim("hibernate", "--no-wait")
    for job in jobs:
        job.wait_for_session("HIBERNATED")
    with only(lab, "n2"):
        lab.exec(
            "ctl", "sh", "-c",
            "".join(f"reclaim restore {job.job} --no-wait & " for job in jobs) + "wait",
            user="alice",
        )  # fmt: skip
        for job, was in zip(jobs, before, strict=True):
            job.wait_for_session("ACTIVE")
            seen = job.counts_on()
            assert (seen.pid, seen.node) == (was.pid, "n2")
            assert "restore-failed" not in job.kinds()


HARD_LINK = """
kept.append(open("first", "w")); os.link("first", "second"); os.unlink("first")
"""
IN_MEMORY = HARD_LINK.replace("first", "/dev/shm/first").replace("second", "/dev/shm/second")
CLOSED = """
kept.append(open("closed", "w+")); os.chmod("closed", 0)
"""


@pytest.mark.parametrize(
    ("thing", "name", "word"),
    [(f"py:{HARD_LINK}", "deleted-link", "/first, deleted, but the file has another name"),
     (f"py:{IN_MEMORY}", "deleted-link", "/dev/shm/first, deleted, but"),
     (f"py:{CLOSED}", "file-not-allowed", "/closed open, which its owner may not open"),
     ("w:/run/lock/fit", "file-in-memory", "/run/lock/fit, which lies in this node's memory")],
    ids=["link", "link in memory", "mode", "memory"],
)  # fmt: skip
def test_what_stands_in_the_way_is_told_long_before_any_warning(lab, opener, thing, name, word):
    alice(lab, "rm -f first second closed")
    for node in ("n1", "n2"):
        lab.exec(node, "sh", "-c", "mkdir -p /run/lock; chmod 1777 /run/lock; rm -f /run/lock/fit")
    job = opener(thing)
    before = job.seen()
    lab.wait("the look", lambda: job.session()["blockers"], 40)
    (found,) = job.session()["blockers"]
    assert found.startswith(f"{name}: ")
    assert word in found
    assert "not-hibernatable" in job.kinds()
    assert word in lab.out("ctl", "reclaim", "list")
    assert word in lab.out("ctl", "reclaim", "show", str(job.job))
    # it is the truth, and nothing is frozen for it
    done = job.reclaim("hibernate", check=False)
    assert done.returncode == 21
    assert word in done.stderr
    assert job.counts_on().pid == before.pid


def test_a_store_without_room_is_told_and_taken_back(lab, opener):
    place = "/etc/slurm-reclaim/conf.d/zz-fit.toml"
    text = '[agent]\npreflight = "10s"\n[store]\nmin_free = "900TiB"\n'
    lab.exec("n1", "sh", "-c", f"cat > {place}", stdin=text)
    try:
        lab.restart_daemon("n1", "reclaim-agent")
        with only(lab, "n1"):
            job = opener()
        lab.wait("the look", lambda: job.session()["blockers"], 40)
        assert job.session()["blockers"][0].startswith("store-space: store /shared/reclaim has ")
        lab.exec("n1", "sed", "-i", "s/900TiB/1MiB/", place)
        lab.restart_daemon("n1", "reclaim-agent")
        lab.wait("another look", lambda: not job.session()["blockers"], 40)
        assert "hibernatable" in job.kinds()
    finally:
        lab.exec("n1", "rm", place)
        lab.restart_daemon("n1", "reclaim-agent")
    job.reclaim("hibernate")


SEMAPHORE = """
import multiprocessing
kept.append(multiprocessing.get_context("spawn").Lock())
"""


def test_a_named_semaphore_stands_in_nobodys_way(lab, opener):
    """Its file in /dev/shm was made under one name, and has another one now."""
    job = opener(f"py:{SEMAPHORE}")
    before = job.seen()
    job.reclaim("hibernate")
    job.reclaim("restore")
    assert job.counts_on().pid == before.pid


@pytest.mark.parametrize("how", ["flock", "lockf"])
def test_a_lock_that_another_process_took_is_not_waited_for(lab, opener, how):
    alice(lab, "rm -f held.txt")
    take = f"import fcntl; f = open('held.txt', 'a+'); fcntl.{how}(f, fcntl.LOCK_EX); "
    job = opener(f"py:{take}kept.append(f)")
    job.reclaim("hibernate")
    words = shlex.quote(f"{take}import time; time.sleep(600)")
    alice(lab, f"python3 -c {words} >/dev/null 2>&1 & echo $! > {HOME}/taker; sleep 1")
    try:
        said = refused(job)
        assert "held.txt: locked by another process meanwhile" in said
    finally:
        alice(lab, "kill $(cat taker)")
    job.reclaim("restore")
    job.counts_on()
    again = take.replace("LOCK_EX", "LOCK_EX | fcntl.LOCK_NB")
    done = lab.exec(
        "ctl", "python3", "-c", again.replace("held.txt", f"{HOME}/held.txt"), check=False
    )
    assert "BlockingIOError" in done.stderr, "the session has its lock again"
