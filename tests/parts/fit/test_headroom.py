"""Ports, memory and mounts, asked of the kernel."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_reclaim.adapters.criu import processor
from slurm_reclaim.adapters.criu.facts import libc
from slurm_reclaim.adapters.proc import filesystems, headroom

JOB = "slurm-reclaim-fit"


def test_a_port_is_taken_or_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = headroom.refused_ports([f"tcp/127.0.0.1:{port}", f"tcp/0.0.0.0:{port}"])
        assert found == [f"port tcp/127.0.0.1:{port} is taken", f"port tcp/0.0.0.0:{port} is taken"]
        assert headroom.refused_ports([f"tcp/127.0.0.2:{port}", f"udp/127.0.0.1:{port}"]) == []
    assert headroom.refused_ports([f"tcp/127.0.0.1:{port}"]) == []


def test_a_port_whose_last_connection_still_fades_is_free() -> None:
    """TIME_WAIT does not keep CRIU from it, nor us."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        client = socket.create_connection(address)
        there, _ = server.accept()
        there.close()
        client.close()
    assert headroom.refused_ports([f"tcp/127.0.0.1:{address[1]}"]) == []


def test_an_address_of_another_node() -> None:
    assert headroom.refused_ports(["tcp/192.0.2.7:8888"]) == [
        "192.0.2.7 is no address of this node (tcp/192.0.2.7:8888)"
    ]
    assert headroom.refused_ports(["tcp/8888", "what"]) == [], "an older manifest"


def test_ipv6() -> None:
    if not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("no IPv6 here")
    try:
        taken = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 loopback here")
    with taken:
        port = taken.getsockname()[1]
        assert headroom.refused_ports([f"tcp/[::1]:{port}"]) == [f"port tcp/[::1]:{port} is taken"]


TAKER = """
import os, sys
place, file = sys.argv[1:]
with open(place + "/cgroup.procs", "w") as procs:
    procs.write("0")
with open(file, "wb") as out:
    for _ in range(24):
        out.write(os.urandom(1 << 20))
    out.flush()
    os.fsync(out.fileno())
held = bytearray(b"x") * (24 << 20)
print("there", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_what_a_job_may_still_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """C12: its own memory counts, page cache does not."""
    base = Path("/sys/fs/cgroup")
    v2 = (base / "cgroup.controllers").exists()
    top = base if v2 else base / "memory"
    if not top.is_dir() or (v2 and "memory" not in (base / "cgroup.controllers").read_text()):
        pytest.skip("no memory controller is mounted")
    job = top / JOB
    job.mkdir(exist_ok=True)
    mib = 1 << 20
    # On a disk: a file in memory is no page cache, and that is where other tests' files may lie.
    file = Path("/var/tmp") / f"{JOB}-{os.getpid()}"
    words = [sys.executable, "-c", TAKER, str(job), str(file)]
    try:
        (job / ("memory.max" if v2 else "memory.limit_in_bytes")).write_text(str(96 * mib))
        directories = {"": str(job)} if v2 else {"memory": str(job)}
        monkeypatch.setattr(headroom, "of_process", lambda _: directories)
        assert headroom.of_job(1) == 96 * mib
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as taker:
            assert taker.stdout is not None
            assert taker.stdout.readline() == b"there\n"
            # What the kernel counts of the page cache is up to two seconds old.
            deadline = time.monotonic() + 10
            while (left := headroom.of_job(1) or 0) <= 52 * mib and time.monotonic() < deadline:
                time.sleep(0.1)
            taker.communicate()
        # 24 MiB and an interpreter; with the file it would be 48.
        assert 52 * mib < left < 72 * mib, left / mib
    finally:
        job.rmdir()
        file.unlink(missing_ok=True)
    assert headroom.of_job(1) is None, "a cgroup that is gone counts nothing"


# Of a job under Slurm 24.11 on Debian 13 (Linux 6.12): 300 MiB asked for, 64 MiB held.
JOB_V2 = {
    "memory.max": "314572800\n",
    "memory.high": "314572800\n",
    "memory.current": "72650752\n",
    "memory.stat": "anon 71290880\nfile 36864\nkernel 1064960\ninactive_anon 0\n"
    "active_anon 71245824\ninactive_file 20480\nactive_file 16384\nunevictable 0\n",
}


@pytest.mark.parametrize(
    ("changed", "room"),
    [
        ({}, 314572800 - 72650752 + 36864),
        ({"memory.high": "209715200\n"}, 209715200 - 72650752 + 36864),
        ({"memory.high": "max\n"}, 314572800 - 72650752 + 36864),
        ({"memory.max": "max\n"}, 314572800 - 72650752 + 36864),
        ({"memory.max": "max\n", "memory.high": "max\n"}, None),
        ({"memory.high": "1000\n"}, 0),
    ],
)
def test_what_a_job_may_still_take_in_version_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], room: int | None
) -> None:
    for name, text in {**JOB_V2, **changed}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(headroom, "of_process", lambda _: {"": str(tmp_path)})
    assert headroom.of_job(1) == room


def test_the_node_has_memory() -> None:
    available = headroom.of_node()
    assert available is not None
    assert 0 < available < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_places_and_what_lies_on_them() -> None:
    points = {b"/": "ext4", b"/shared": "nfs4", b"/shared/a": "xfs", b"/tmp": "tmpfs"}
    paths = [b"/shared/a/x", b"/shared/ab/x", b"/tmp/x", b"/usr/x", b"/shared"]
    assert filesystems.places_of(paths, points) == ("/shared nfs4", "/shared/a xfs")
    assert b"/proc" in filesystems.mounted()
    told = filesystems.places()
    assert told is None or not any(each.startswith(("/proc ", "/sys ")) for each in told)


def test_the_processor_and_the_library_of_this_machine() -> None:
    flags = processor.flags().split()
    assert flags == sorted(set(flags))
    if os.uname().machine == "x86_64":
        assert "sse2" in flags
        assert not {"hypervisor", "vmx", "svm", "constant_tsc"} & set(flags)
    assert processor.xsave_size("/nonexistent/criu") == 0
    library = libc()
    assert library.version == (os.confstr("CS_GNU_LIBC_VERSION") or "").removeprefix("glibc ")
    assert len(library.build_id) == 40
