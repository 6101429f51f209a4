"""An image gives its threads what the kernel said they had, and nothing else (S9)."""

from __future__ import annotations

import os
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_reclaim.adapters.criu import credentials, images
from slurm_reclaim.adapters.proc import rights, tree
from slurm_reclaim.errors import CredentialsForged
from slurm_reclaim.model.checkpoint import Credentials, Rights
from tests.unit.agent import by_google
from tests.unit.agent.test_images import core, write

OWNER = Credentials(2001, 2001, (2001, 100), 0x1FF, False)
PLAIN = Rights(
    uids=(2001,) * 4, gids=(2001,) * 4, groups=(100,), inheritable=0, permitted=0, effective=0,
    bounding=0x1FF, ambient=0, no_new_privs=False, seccomp=0, label="", dumpable=True, login=-1,
)  # fmt: skip
KNOWN = {300: PLAIN, 301: PLAIN, 310: PLAIN}


def image(folder: Path, **forged: Any) -> Path:
    """Two processes, of which 300 has a second thread, 301; `forged` changes that one's core."""
    item = by_google.message("PsTree")
    write(
        folder / "pstree.img",
        item(pid=300, ppid=0, pgid=300, sid=300, threads=[300, 301]),
        item(pid=310, ppid=300, pgid=300, sid=300, threads=[310]),
    )
    for thread in (300, 301, 310):
        write(folder / f"core-{thread}.img", core(**(forged if thread == 301 else {})))
    for process in (300, 310):
        write(folder / f"mm-{process}.img", by_google.message("Memory")(dumpable=1))
    return folder


def refused(folder: Path, words: str, known: dict[int, Rights] | None = None) -> None:
    with pytest.raises(CredentialsForged, match=words):
        credentials.check(folder, OWNER, KNOWN if known is None else known)


def test_what_the_kernel_said_passes(tmp_path: Path) -> None:
    credentials.check(image(tmp_path), OWNER, KNOWN)


def with_zombie(folder: Path, first_thread: int) -> Path:
    """320 has ended and nobody has asked how; its only thread is what CRIU made of it."""
    image(folder)
    item = by_google.message("PsTree")
    write(
        folder / "pstree.img",
        item(pid=300, ppid=0, pgid=300, sid=300, threads=[300, 301]),
        item(pid=310, ppid=300, pgid=300, sid=300, threads=[310]),
        item(pid=320, ppid=300, pgid=300, sid=300, threads=[first_thread]),
    )
    dead = by_google.message("Core")(mtype=1)
    dead.tc.task_state = 2
    write(folder / "core-320.img", dead)
    return folder


@pytest.mark.parametrize("first_thread", [320, 0, 72, 2207491872])
def test_a_zombie_passes_whatever_its_thread_is_called(tmp_path: Path, first_thread: int) -> None:
    credentials.check(with_zombie(tmp_path, first_thread), OWNER, KNOWN)
    assert images.highest_pid(tmp_path) == 320


def test_a_zombies_thread_brings_no_core_of_its_own(tmp_path: Path) -> None:
    write(with_zombie(tmp_path, 330) / "core-330.img", core(uid=0))
    refused(tmp_path, r"core-330\.img belongs to no thread")


def test_the_first_thread_of_the_living_is_looked_at(tmp_path: Path) -> None:
    """A process whose first thread is another one's number would be restored with its core."""
    item = by_google.message("PsTree")
    write(
        image(tmp_path) / "pstree.img",
        item(pid=300, ppid=0, pgid=300, sid=300, threads=[330, 301]),
        item(pid=310, ppid=300, pgid=300, sid=300, threads=[310]),
    )
    refused(tmp_path, r"core-330\.img is missing")
    write(tmp_path / "core-330.img", core(uid=0))
    refused(tmp_path, "thread 330 is in the image and was not in the session")


@pytest.mark.parametrize(
    "forged",
    [
        {"uid": 0}, {"euid": 0}, {"suid": 0}, {"fsuid": 0}, {"gid": 0}, {"fsgid": 27},
        {"groups": [0]}, {"groups": [100, 2001]}, {"groups": []},
        {"cap_prm": [1]}, {"cap_eff": [0, 1]}, {"cap_inh": [1]}, {"cap_amb": [1]},
        {"secbits": 1}, {"cap_bnd": [0x3FF, 0]}, {"cap_bnd": [0x1FF, 1]}, {"cap_bnd": [0xFF]},
        {"lsm_profile": b"other"}, {"egid": 100}, {"no_new_privs": 1},
    ],
)  # fmt: skip
def test_forged_credentials_of_any_thread(tmp_path: Path, forged: dict[str, Any]) -> None:
    refused(image(tmp_path, **forged), r"core-301\.img")


def edited(folder: Path, thread: int, change: Any) -> Path:
    path = image(folder) / f"core-{thread}.img"
    entry = core()
    change(entry)
    write(path, entry)
    return folder


def _login(entry: Any) -> None:
    entry.tc.loginuid = 0


def _filtered(entry: Any) -> None:
    entry.thread_core.seccomp_mode = 2


def _old_filter(entry: Any) -> None:
    entry.tc.old_seccomp_mode = 2


def _namespace(entry: Any) -> None:
    entry.ids.user_ns_id = 7


@pytest.mark.parametrize("change", [_login, _filtered, _old_filter])
def test_forged_fields_beside_the_credentials(tmp_path: Path, change: Any) -> None:
    refused(edited(tmp_path, 310, change), r"core-310\.img")


def test_a_filter_can_not_be_taken_away(tmp_path: Path) -> None:
    refused(image(tmp_path), "seccomp is 0x0", KNOWN | {310: replace(PLAIN, seccomp=2)})


def test_further_threads_have_the_filter_of_the_first(tmp_path: Path) -> None:
    """CRIU does not write it down for them."""
    filtered = replace(PLAIN, seccomp=2)
    folder = edited(tmp_path, 300, _filtered)
    credentials.check(folder, OWNER, {300: filtered, 301: filtered, 310: PLAIN})


def test_no_new_privs_can_not_be_taken_away(tmp_path: Path) -> None:
    refused(image(tmp_path), "no_new_privs", KNOWN | {310: replace(PLAIN, no_new_privs=True)})


def test_what_nobody_might_look_into_stays_so(tmp_path: Path) -> None:
    refused(image(tmp_path), "dumpable is on", KNOWN | {310: replace(PLAIN, dumpable=False)})


def test_processes_do_not_part_over_namespaces(tmp_path: Path) -> None:
    image(tmp_path)
    for thread, space in ((300, 1), (310, 2)):
        entry = core()
        entry.ids.user_ns_id = space
        write(tmp_path / f"core-{thread}.img", entry)
    refused(tmp_path, "several namespaces")


@pytest.mark.parametrize(
    "name", ["userns-1.img", "netns-9.img", "mountpoints-2.img", "pidns-1.img"]
)
def test_no_namespace_comes_with_the_image(tmp_path: Path, name: str) -> None:
    (image(tmp_path) / name).touch()
    refused(tmp_path, name)


def test_threads_that_the_kernel_did_not_show(tmp_path: Path) -> None:
    fewer = {k: v for k, v in KNOWN.items() if k != 310}
    refused(image(tmp_path), "thread 310 is in the image", fewer)
    refused(tmp_path, "no credentials of thread 320", KNOWN | {320: PLAIN})
    write(tmp_path / "core-999.img", core())
    refused(tmp_path, r"core-999\.img belongs to no thread")


def test_a_core_that_is_missing_a_link_or_two(tmp_path: Path) -> None:
    path = image(tmp_path) / "core-310.img"
    write(path, core(), core(uid=0))
    refused(tmp_path, "2 entries")
    path.rename(tmp_path / "aside")
    refused(tmp_path, "missing")
    path.symlink_to(tmp_path / "aside")
    refused(tmp_path, "missing")


@pytest.mark.parametrize(
    "more",
    [
        {"uids": (2001, 0, 2001, 2001)}, {"permitted": 1 << 21}, {"ambient": 1}, {"groups": (0,)},
        {"gids": (2001, 2001, 0, 2001)}, {"bounding": 0x3FF},
    ],
)  # fmt: skip
def test_a_session_that_already_had_more_is_not_believed(tmp_path: Path, more: Any) -> None:
    refused(image(tmp_path), "more than its owner's", KNOWN | {301: replace(PLAIN, **more)})


# -- the kernel's word ----------------------------------------------------------------------------


def test_every_thread_is_looked_at() -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(3)]
    for one in threads:
        one.start()
    try:
        found = rights.of_process(os.getpid())
        assert set(found) >= {one.native_id for one in threads} | {os.getpid()}
        mine = found[os.getpid()]
        assert mine.uids == (os.getuid(),) * 4
        assert mine.groups == tuple(sorted(os.getgroups()))
        assert mine.dumpable
    finally:
        stop.set()
    assert rights.of_process(2**22 + 1) == {}


def test_a_process_that_shut_itself_off() -> None:
    script = "import ctypes,sys; ctypes.CDLL(None).prctl(4,0); print(flush=1); sys.stdin.read()"
    other = {"user": 65534} if os.geteuid() == 0 else {}  # what is root's looks the same
    child = subprocess.Popen(
        ["/usr/bin/python3", "-c", script], stdin=-1, stdout=-1, cwd="/", **other
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert not rights.of_process(child.pid)[child.pid].dumpable
    finally:
        child.kill()
        child.wait()


def test_threads_are_grouped_and_found_again() -> None:
    known = {1: PLAIN, 2: replace(PLAIN, seccomp=2), 3: PLAIN}
    held = rights.grouped(known)
    assert [one.threads for one in held] == [(1, 3), (2,)]
    assert rights.of_threads(held) == known


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ({}, ""),
        ({"no_new_privs": True, "seccomp": 2, "groups": (), "bounding": 1}, ""),
        ({"uids": (2001, 0, 2001, 2001)}, "uids"),
        ({"gids": (0,) * 4}, "gids"),
        ({"groups": (100, 27)}, "groups"),
        ({"permitted": 1}, "permitted"),
        ({"effective": 1}, "effective"),
        ({"inheritable": 1}, "inheritable"),
        ({"ambient": 1}, "ambient"),
        ({"bounding": 0x3FF}, "bounding"),
        ({"label": "unconfined_t"}, "label"),
        ({"login": 0}, "login"),
    ],
)
def test_what_a_thread_may_not_come_back_with(now: dict[str, Any], words: str) -> None:
    found = rights.grown(replace(PLAIN, **now), PLAIN)
    assert (words in found, bool(found)) == (True, bool(words))


@pytest.mark.parametrize(
    "before", [{"no_new_privs": True}, {"seccomp": 2}, {"dumpable": False}, {"label": "x"}]
)
def test_what_a_thread_may_not_lose(before: dict[str, Any]) -> None:
    assert rights.grown(PLAIN, replace(PLAIN, **before))


def test_a_restored_process_is_compared_with_what_it_was() -> None:
    me = tree.read(os.getpid())
    assert me is not None
    held = rights.grouped(rights.of_process(me.pid))
    assert rights.gained([me], held, me.pid, me.pid) == ""
    thread = held[0].threads[0]
    fewer = rights.grouped({thread: replace(held[0].rights, uids=(1,) * 4)})
    assert "uids" in rights.gained([me], fewer, me.pid, me.pid)
