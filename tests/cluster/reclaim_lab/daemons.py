"""Which daemons run on which node, in which order, and how each is started and stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shlex
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from reclaim_lab import ssh, units
from reclaim_lab.errors import LabError
from reclaim_lab.node import Node
from reclaim_lab.process import start_ticks

RUN = "/run/lab"
"""On the node: pid records and readiness sockets."""


@dataclass(frozen=True)
class Daemon:
    name: str
    on_ctl: bool
    on_compute: bool
    argv: tuple[str, ...] = ()
    """Empty: the command line comes from the systemd unit of this name."""
    user: str = "root"
    prepare: str = ""
    pidfile: str = ""
    """Where it writes its pid itself: `scontrol reconfigure` gives Slurm's daemons new ones."""
    ready: Callable[[Node], bool] | None = None
    patience: float = 60.0

    @property
    def log(self) -> str:
        return f"/var/log/{self.name}.log"

    @property
    def output(self) -> str:
        """Where its stdout and stderr go; Slurm's and MariaDB's daemons have a log beside it."""
        return self.log if not self.argv else f"/var/log/{self.name}.out"

    def belongs_on(self, node: Node) -> bool:
        return self.on_ctl if node.name == "ctl" else self.on_compute


def _answers(*argv: str) -> Callable[[Node], bool]:
    return lambda node: node.ask(argv, timeout=5) is not None


def _slurmctld_up(node: Node) -> bool:
    return "is UP" in (node.ask(["scontrol", "ping"], timeout=5) or "")


def _exists(path: str) -> Callable[[Node], bool]:
    return lambda node: node.path(path).exists()


def _slurm_dirs(*more: str) -> str:
    made = " ".join(["/run/slurm", *more])
    return f"install -d -o slurm -g slurm -m 755 {made}"


DAEMONS = [
    Daemon("munged", True, True, ("/usr/sbin/munged", "--foreground"), user="munge",
           prepare="install -d -o munge -g munge -m 755 /run/munge\n"
                   "install -d -o munge -g munge -m 700 /var/lib/munge /var/log/munge",
           ready=_exists("/run/munge/munge.socket.2")),
    Daemon("mariadbd", True, False, ("/usr/sbin/mariadbd",), user="mysql",
           prepare="install -d -o mysql -g root -m 755 /run/mysqld",
           ready=_answers("mariadb-admin", "--silent", "ping")),
    Daemon("slurmdbd", True, False, ("/usr/sbin/slurmdbd", "-D"), user="slurm",
           prepare=_slurm_dirs()
                   + "\ntouch /var/log/slurmdbd.log; chown slurm /var/log/slurmdbd.log"
                   "\nmariadb -e \"CREATE DATABASE IF NOT EXISTS slurm_acct_db;"
                   " CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED VIA unix_socket;"
                   " GRANT ALL ON slurm_acct_db.* TO slurm@localhost\"",
           pidfile="/run/slurm/slurmdbd.pid",
           ready=_answers("sacctmgr", "-nP", "list", "cluster")),
    Daemon("slurmctld", True, False, ("/usr/sbin/slurmctld", "-D"), user="slurm",
           prepare=_slurm_dirs("/var/spool/slurmctld")
                   + "\ntouch /var/log/slurmctld.log; chown slurm /var/log/slurmctld.log",
           pidfile="/run/slurm/slurmctld.pid", ready=_slurmctld_up),
    Daemon("sshd", False, True, ("/usr/sbin/sshd", "-D", "-e"), prepare=ssh.PREPARE_SERVER,
           pidfile="/run/sshd.pid", ready=_exists("/run/sshd.pid")),
    Daemon("slurmd", False, True, ("/usr/sbin/slurmd", "-D"),
           prepare=_slurm_dirs() + "\nmkdir -p /var/spool/slurmd",
           pidfile="/run/slurm/slurmd.pid", ready=_exists("/run/slurm/slurmd.pid")),
    Daemon("reclaimd", True, False, user="slurm-reclaim"),
    Daemon("reclaim-agent", False, True),
]  # fmt: skip


def by_name(name: str) -> Daemon:
    for daemon in DAEMONS:
        if daemon.name == name:
            return daemon
    known = ", ".join(daemon.name for daemon in DAEMONS)
    raise LabError(f"no daemon is called {name!r}; there are {known}")


def touched_by(changed: set[str]) -> list[Daemon]:
    """Which daemons must be started anew when these files of their node were changed."""
    found = []
    if any(
        name.startswith(("opt/slurm-reclaim", "usr/", "etc/slurm-reclaim", "etc/systemd"))
        for name in changed
    ):
        found += ["reclaim-agent", "reclaimd"]
    # slurmd keeps the plugins it has loaded; slurmctld loads none of ours.
    if any(name.startswith("etc/slurm/") or name.endswith(".so") for name in changed):
        found.append("slurmd")
    if any(name.startswith("etc/ssh/sshd_config.d/") for name in changed):
        found.append("sshd")
    if changed & {"etc/hosts", "etc/slurm/slurm.conf", "etc/slurm/cgroup.conf"}:
        found.append("slurmctld")
    return [by_name(name) for name in found]


def unit_of(node: Node, daemon: Daemon) -> units.Unit | None:
    for directory in ("/etc/systemd/system", "/usr/lib/systemd/system"):
        with contextlib.suppress(OSError):
            text = node.path(f"{directory}/{daemon.name}.service").read_text()
            return units.parse(f"{daemon.name}.service", text)
    return None


def pid_of(node: Node, daemon: Daemon) -> int | None:
    """Its pid on the node, None when it does not run."""
    if daemon.pidfile:
        try:
            pid = int(node.path(daemon.pidfile).read_text())
            if node.path(f"/proc/{pid}/comm").read_text().strip() == daemon.name:
                return pid
        except (OSError, ValueError):
            pass
    try:
        record = json.loads(node.path(f"{RUN}/{daemon.name}.pid").read_text())
    except (OSError, ValueError):
        return None
    ticks = start_ticks(node.path(f"/proc/{record['pid']}/stat"))
    return record["pid"] if ticks == record["start"] else None


@dataclass(frozen=True)
class _Launch:
    argv: tuple[str, ...]
    user: str
    before: str
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    privileges: tuple[str, ...] = ()
    umask: str = "0022"


def start(node: Node, daemon: Daemon) -> bool:
    """False when there is nothing to start: the project's unit is not installed."""
    if pid_of(node, daemon):
        return True
    unit = None if daemon.argv else unit_of(node, daemon)
    if unit is None and not daemon.argv:
        return False
    node.run(["mkdir", "-p", RUN], doing=f"starting {daemon.name} on {node.name}")
    ready = None
    if unit is None:
        launch = _Launch(daemon.argv, daemon.user, daemon.prepare)
        deadline = time.monotonic() + daemon.patience
    else:
        launch = _launch_of(unit, node)
        deadline = time.monotonic() + unit.start_timeout
        if unit.notifies:
            ready = units.ReadySocket(node.path(f"{RUN}/{daemon.name}.notify"))
            launch.env["NOTIFY_SOCKET"] = f"{RUN}/{daemon.name}.notify"
    try:
        _spawn(node, daemon, launch)
        while not _is_ready(node, daemon, ready, deadline):
            if pid_of(node, daemon) is None:
                raise LabError(_death(node, daemon, "ended right after its start"))
            if time.monotonic() > deadline:
                raise LabError(_death(node, daemon, "is not ready in time"))
    finally:
        if ready:
            ready.close()
    return True


def _is_ready(node: Node, daemon: Daemon, ready: units.ReadySocket | None, deadline: float) -> bool:
    if ready:
        return ready.wait(deadline) == "ready"
    if daemon.ready is None or daemon.ready(node):
        return True
    time.sleep(0.05)
    return False


def _death(node: Node, daemon: Daemon, what: str) -> str:
    said = node.log_tail(daemon.output, 4)
    if daemon.output != daemon.log:
        said += " || " + node.log_tail(daemon.log, 3)
    return f"{daemon.name} on {node.name} {what}: {said}"


def _launch_of(unit: units.Unit, node: Node) -> _Launch:
    starts = unit.commands("ExecStart")
    if len(starts) != 1:
        raise LabError(f"{unit.name} must have one ExecStart, has {len(starts)}")
    account = node.account(unit.user)
    env = {
        "HOME": account.home, "USER": account.name, "LOGNAME": account.name,
        "SHELL": account.shell, "LANG": "C.UTF-8", **unit.environment(),
    }  # fmt: skip
    launch = _Launch(
        tuple(starts[0][1]),
        unit.user,
        unit.directories(),
        env,
        tuple(unit.privileges()),
        unit.last("UMask", "0022"),
    )
    tmpfiles = "/usr/lib/tmpfiles.d/slurm-reclaim.conf"
    before = [f"[ ! -e {tmpfiles} ] || systemd-tmpfiles --create {tmpfiles}", launch.before]
    for ignorable, argv in unit.commands("ExecStartPre"):
        line = shlex.join(_as_user(dataclasses.replace(launch, argv=tuple(argv)), node))
        before.append(f"{line} >>{shlex.quote(f'/var/log/{unit.name[:-8]}.log')} 2>&1"
                      + (" || :" if ignorable else ""))  # fmt: skip
    return dataclasses.replace(launch, before="\n".join(before))


def _as_user(launch: _Launch, node: Node) -> list[str]:
    argv = ["setpriv"]
    if launch.user != "root":
        account = node.account(launch.user)
        argv += ["--reuid", launch.user, "--regid", str(account.gid), "--init-groups"]
    argv += [*launch.privileges, "--"]
    if launch.env:
        argv += ["env", *(f"{key}={value}" for key, value in launch.env.items())]
    return argv + list(launch.argv)


def _spawn(node: Node, daemon: Daemon, launch: _Launch) -> None:
    command = shlex.join(_as_user(launch, node))
    script = (
        # Whoever starts the lab may have fewer open files than systemd would allow.
        f'set -eu\ncd /\nulimit -n "$(ulimit -Hn)"\n{launch.before}\numask {launch.umask}\n'
        f"setsid -- {command} </dev/null >>{daemon.output} 2>&1 &\necho $!"
    )
    try:
        said = node.run(["sh", "-c", script], doing=f"starting {daemon.name} on {node.name}")
    except LabError as error:
        raise LabError(f"{error} || {node.log_tail(daemon.output)}") from error
    pid = int(said.split()[-1])
    ticks = start_ticks(node.path(f"/proc/{pid}/stat"))
    if ticks is not None:
        record = json.dumps({"pid": pid, "start": ticks})
        node.path(f"{RUN}/{daemon.name}.pid").write_text(record)


def stop(node: Node, daemon: Daemon, how: signal.Signals = signal.SIGTERM) -> None:
    pid = pid_of(node, daemon)
    if pid is None:
        return
    stat = node.path(f"/proc/{pid}/stat")
    began = start_ticks(stat)
    node.run(["kill", f"-{how.name[3:]}", str(pid)], doing=f"stopping {daemon.name}")
    deadline = time.monotonic() + 30
    while began is not None and start_ticks(stat) == began:
        if time.monotonic() > deadline:
            raise LabError(f"{daemon.name} on {node.name} is still there 30 s after {how.name}")
        time.sleep(0.02)
