"""What the nodes' disks hold before anything of this project is on them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from reclaim_lab import host_apt, layers
from reclaim_lab.build_root import DIES_WITH_US, Build, build_in_root
from reclaim_lab.errors import LabError
from reclaim_lab.shell import tail

SUITE = "trixie"

_PACKAGE_LINES = """
slurm-wlm slurmdbd slurm-client slurm-wlm-basic-plugins slurm-wlm-mysql-plugin libslurm-dev
slurm-wlm-basic-plugins-dev libpam-slurm-adopt mariadb-server munge libmunge2 libmunge-dev
gcc make libc6-dev pkg-config python3 python3-dev python3-venv python3-pip
systemd bash procps psmisc iproute2 iputils-ping util-linux mount libcap2-bin strace lsof
sqlite3 curl jq less ca-certificates openssh-client openssh-server debian-archive-keyring
"""
PACKAGES = _PACKAGE_LINES.split()

# CRIU 4.1.1 of trixie can't dump TCP sockets on kernels >= 6.16.
FROM_TESTING = ["criu", "python3-pycriu"]

PREFERENCES = "Package: *\nPin: release a=testing\nPin-Priority: 100\n"

USERS = {"alice": 2001, "bob": 2002, "olga": 2003}

# The server only has to survive the death of its processes, not of the machine: the page cache
# keeps what was written, so nothing needs to wait for the disk.
MARIADB_CONF = """[mariadbd]
innodb_flush_log_at_trx_commit = 2
innodb_doublewrite = 0
innodb_log_file_size = 16M
innodb_buffer_pool_size = 64M
innodb_lock_wait_timeout = 900
sync_binlog = 0
skip_log_bin
skip_name_resolve
performance_schema = off
bind_address = 127.0.0.1
"""

# Enough to make venvs for the base root while that is still being built.
BUILDER_PACKAGES = ["python3", "python3-venv", "ca-certificates"]

# Plays the object store that a site has: tests start it where they want it.
S3_SERVER = ["moto[server]>=5"]
JUPYTER = ["jupyterlab", "jupyterhub", "batchspawner", "ipykernel", "numpy"]

_HOOK = r"""
set -eu
for user in $USERS; do
    chroot "$1" useradd --uid "${user#*:}" --no-create-home --shell /bin/bash \
        --home-dir "/shared/home/${user%:*}" "${user%:*}"
done
# Ids of a machine must not be baked in: every node would share them.
rm -f "$1"/etc/ssh/ssh_host_*_key* "$1"/etc/munge/munge.key "$1"/etc/machine-id
rm -rf "$1"/var/cache/apt/archives "$1"/var/log/slurm "$1"/etc/hostname
mkdir -p "$1"/shared "$1"/etc/slurm "$1"/root
"""


def _base_key() -> str:
    return layers.digest(SUITE, PACKAGES, FROM_TESTING, PREFERENCES, USERS, MARIADB_CONF, _HOOK)


def base_root() -> Path:
    return layers.ensure("base", _base_key(), _build_base, f"the Debian {SUITE} root")


def _root_for_venvs() -> Path:
    """The base root where it is there; else a small one with the same Python, ready much sooner."""
    if layers.place("base", _base_key()).is_dir():
        return base_root()
    key = layers.digest(SUITE, BUILDER_PACKAGES)
    return layers.ensure("builder", key, _build_builder, "a small root for the venvs")


def _build_builder(place: Path) -> None:
    _mmdebstrap(place, BUILDER_PACKAGES, [], [SUITE, f"{SUITE}-updates"])


def _build_base(place: Path) -> None:
    (place / "99-lab.cnf").write_text(MARIADB_CONF)
    (place / "testing").write_text(PREFERENCES)
    (place / "hook").write_text(f"#!/bin/sh\n{_HOOK}")
    (place / "hook").chmod(0o755)
    more = [
        "--include=" + ",".join(f"{package}/testing" for package in FROM_TESTING),
        f"--setup-hook=copy-in {place}/testing /etc/apt/preferences.d",
        '--essential-hook=mkdir -p "$1/etc/mysql/mariadb.conf.d"',
        f"--essential-hook=copy-in {place}/99-lab.cnf /etc/mysql/mariadb.conf.d",
        f"--customize-hook={place}/hook",
    ]
    _mmdebstrap(place, PACKAGES, more, [SUITE, f"{SUITE}-updates", "testing"])


def _mmdebstrap(place: Path, packages: list[str], more: list[str], suites: list[str]) -> None:
    mirror = host_apt.debian_mirror(host_apt.host_sources())
    if Path("/etc/apt/auth.conf.d").is_dir():
        more = ["--setup-hook=copy-in /etc/apt/auth.conf.d /etc/apt", *more]
    argv = [
        *DIES_WITH_US,
        *("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"),
        *("mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory"),
        f"--include={','.join(packages)}",
        '--aptopt=Acquire::Check-Valid-Until "false"',
        '--aptopt=APT::Install-Recommends "false"',
        *(f"--aptopt={line}" for line in host_apt.apt_settings()),
        "--dpkgopt=force-unsafe-io",
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        "--dpkgopt=path-exclude=/usr/share/man/*",
        "--dpkgopt=path-exclude=/usr/share/locale/*",
        *more,
        *(SUITE, f"{place}/tree"),
        *(host_apt.source_line(mirror, suite) for suite in suites),
    ]
    users = " ".join(f"{name}:{uid}" for name, uid in USERS.items())
    log = place / "log"
    with log.open("w") as output:
        rc = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "USERS": users, "DEBIAN_FRONTEND": "noninteractive"},
        ).returncode
    if rc != 0:
        errors = re.findall(r"^E: .*", log.read_text(errors="replace"), re.M)
        said = tail("\n".join(errors)) if errors else tail(log.read_text(errors="replace"))
        raise LabError(f"mmdebstrap failed: {said} (all in {log})")


def jupyter_layer() -> Path:
    # Compiling with all cores afterwards is faster than pip's own.
    script = (
        "python3 -m venv /opt/jupyter\n"
        f"/opt/jupyter/bin/pip install -q --no-compile {' '.join(JUPYTER)}\n"
        "/opt/jupyter/bin/python -m compileall -q -j 0 /opt/jupyter/lib || :\n"
    )

    def build(place: Path) -> None:
        build_in_root(Build([_root_for_venvs()], script, place), "installing Jupyter")

    return layers.ensure(
        "jupyter", layers.digest(f"base-{_base_key()}", script), build, "the Jupyter layer"
    )


def s3_server_layer() -> Path:
    script = (
        "python3 -m venv /opt/moto\n"
        f"/opt/moto/bin/pip install -q --no-compile {_quoted(S3_SERVER)}\n"
        "/opt/moto/bin/python -m compileall -q -j 0 /opt/moto/lib || :\n"
    )

    def build(place: Path) -> None:
        build_in_root(Build([_root_for_venvs()], script, place), "installing an S3 server")

    key = layers.digest(f"base-{_base_key()}", script)
    return layers.ensure("s3-server", key, build, "the layer of the S3 server")


def dependency_layer(dependencies: list[str], build_requires: list[str]) -> Path:
    """The project's venv without the project, and a second one that can build its wheel.

    Two, since what builds a wheel must not be importable by what runs.
    """
    script = (
        "python3 -m venv /opt/slurm-reclaim\n"
        f"/opt/slurm-reclaim/bin/pip install -q {_quoted(dependencies)}\n"
        "python3 -m venv /opt/slurm-reclaim-build\n"
        f"/opt/slurm-reclaim-build/bin/pip install -q wheel {_quoted(build_requires)}\n"
    )
    if not dependencies:
        script = script.replace("/opt/slurm-reclaim/bin/pip install -q \n", ":\n")

    def build(place: Path) -> None:
        build_in_root(
            Build([_root_for_venvs()], script, place), "installing the project's dependencies"
        )

    key = layers.digest(f"base-{_base_key()}", script)
    return layers.ensure("dependencies", key, build, "the layer of the project's dependencies")


def extra_layer(name: str, dependencies: list[str], under: list[Path]) -> Path:
    """What one of the project's optional extras adds to its venv, whose layers `under` has."""
    script = f"/opt/slurm-reclaim/bin/pip install -q {_quoted(dependencies)}\n"

    def build(place: Path) -> None:
        lowers = [*under, _root_for_venvs()]
        build_in_root(Build(lowers, script, place), f"installing the project's extra {name}")

    key = layers.digest([path.name for path in under], script)
    return layers.ensure(f"extra-{name}", key, build, f"the layer of the project's extra {name}")


def _quoted(words: list[str]) -> str:
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
