"""Every setting, once: name, type, default, and the sentence that explains it.

The loader, the error messages, the shipped sample and docs/configuration.md are all made from
these classes. Durations are written with a unit ("45m"), sizes too ("64MiB"); in memory they are
seconds and bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NewType

Seconds = NewType("Seconds", float)
Bytes = NewType("Bytes", int)
Path = NewType("Path", str)


def setting(
    default: Any,
    doc: str,
    *,
    choices: tuple[str, ...] = (),
    example: str = "",
    least: float | None = None,
    most: float | None = None,
) -> Any:
    """A dataclass field that carries its documentation and its bounds (in seconds or bytes for
    durations and sizes). Lists default to empty."""
    metadata = {"doc": doc, "choices": choices, "example": example, "least": least, "most": most}
    if isinstance(default, (list, dict)):
        kind = type(default)
        return field(default_factory=lambda: kind(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Controller:
    """[controller]: reclaimd, on the slurmctld host."""

    host: str = setting("localhost", "Host name under which agents and users reach reclaimd.")
    port: int = setting(6828, "TCP port of reclaimd.", least=1, most=65535)
    listen: str = setting("0.0.0.0", "Address to listen on.")
    user: str = setting(
        "slurm-reclaim", "Account reclaimd runs as; agents take orders from no other but root."
    )
    state: Path = setting(
        Path("/var/lib/slurm-reclaim/controller"),
        "Directory of the journal. Not the agent's: what root reads on a node must not lie below "
        "a directory of another account.",
    )
    journal: str = setting(
        "",
        "SQLAlchemy URL of the journal; empty: SQLite below `state`. No password here, everyone "
        "reads this file: name an option file that only `user` can read.",
        example="mysql+pymysql://db/reclaim?read_default_file=/etc/slurm-reclaim/db.cnf",
    )


@dataclass(frozen=True)
class Slurm:
    """[slurm]: How Slurm is asked and what it is told."""

    cluster: str = setting("", "ClusterName; empty: asked of Slurm.")
    bin: Path = setting(Path("/usr/bin"), "Directory of squeue, scontrol, sinfo and sacctmgr.")
    interval: Seconds = setting(
        Seconds(10), "Time between two cluster-wide queries.", least=1, most=3600
    )
    timeout: Seconds = setting(
        Seconds(30), "A Slurm command that takes longer counts as unanswered.", least=1
    )
    held_state: str = setting(
        "special-exit",
        "How a hibernated job is held: special-exit (squeue shows SE) or held (requeue-hold).",
        choices=("special-exit", "held"),
    )


@dataclass(frozen=True)
class Agent:
    """[agent]: reclaim-agent, on every compute node."""

    socket: Path = setting(Path("/run/slurm-reclaim/agent.sock"), "Socket for the SPANK plugin.")
    state: Path = setting(Path("/var/lib/slurm-reclaim"), "What the agent keeps across restarts.")
    run: Path = setting(Path("/run/slurm-reclaim"), "Working files, gone at boot.")
    interval: Seconds = setting(Seconds(10), "Time between two reports.", least=1, most=600)
    criu: Path = setting(Path("/usr/sbin/criu"), "CRIU, 4.2.1 or later.")
    dump_timeout: Seconds = setting(
        Seconds(1800), "A dump that takes longer is given up; the session runs on.", least=1
    )
    restore_timeout: Seconds = setting(
        Seconds(1800), "A restore that takes longer is given up.", least=1
    )
    ghost_limit: Bytes = setting(Bytes(512 << 20), "Largest deleted-but-open file that is saved.")
    silent_after: Seconds = setting(
        Seconds(60), "An agent not heard of for this long is down.", least=2
    )


@dataclass(frozen=True)
class Store:
    """[store]: Where checkpoints are kept. Root-only, on storage every compute node mounts."""

    path: Path = setting(Path("/var/spool/slurm-reclaim"), "Directory of the checkpoints.")
    min_free: Bytes = setting(Bytes(1 << 30), "Space that must stay free after a dump.")


@dataclass(frozen=True)
class Sessions:
    """[session]: How managed sessions are set up."""

    private_tmp: Path = setting(
        Path(""),
        "Give each session a private /tmp below this directory; empty: /tmp is shared.",
        example="/var/tmp",
    )
    block_io_uring: str = setting(
        "auto",
        "io_uring can't be dumped: answer ENOSYS to it (auto: unless the kernel has it off).",
        choices=("auto", "always", "never"),
    )
    restore_wait: Seconds = setting(
        Seconds(120),
        "A job that lands where its image can't be restored waits this long, then is held again.",
    )
    tail: Seconds = setting(
        Seconds(600),
        "Least time limit that a restored job is given; the wait for the restore counts.",
    )


@dataclass(frozen=True)
class Logging:
    """[logging]: What the daemons write to standard error, which systemd takes to the journal."""

    level: str = setting(
        "info",
        "Least important messages that are written.",
        choices=("debug", "info", "warning", "error"),
    )


@dataclass(frozen=True)
class Adopt:
    """[[adopt]]: Which batch jobs are managed. First match wins; every given key must match;
    lists hold shell patterns. A user's own `sbatch --reclaim=on|off` comes before the rules."""

    name: str = setting("", "Name of the rule, for messages.")
    manage: bool = setting(True, "false: jobs matched here are left alone.")
    partition: list[str] = setting([], "Partition names.", example='["gpu"]')
    qos: list[str] = setting([], "QOS names.")
    account: list[str] = setting([], "Account names.")
    user: list[str] = setting([], "User names.")
    job_name: list[str] = setting([], "Job names.", example='["spawner-jupyterhub"]')
    gres: list[str] = setting([], "GRES or TRES the job was given.", example='["gpu*"]')


@dataclass(frozen=True)
class Config:
    """The whole configuration file."""

    mode: str = setting(
        "shadow",
        "off: nothing acts by itself; shadow: only log what would be done; prod: act.",
        choices=("off", "shadow", "prod"),
    )
    controller: Controller = field(default_factory=Controller)
    slurm: Slurm = field(default_factory=Slurm)
    agent: Agent = field(default_factory=Agent)
    store: Store = field(default_factory=Store)
    session: Sessions = field(default_factory=Sessions)
    logging: Logging = field(default_factory=Logging)
    adopt: list[Adopt] = field(default_factory=list)


DEFAULT_FILE = "/etc/slurm-reclaim/slurm-reclaim.toml"
