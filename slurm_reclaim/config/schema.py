"""Every setting, once: name, type, default, and the sentence that explains it.

The loader, the error messages, the shipped sample and docs/configuration.md are all made from
these classes. Durations are written with a unit ("45m"), sizes too ("64MiB"); in memory they are
seconds and bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from slurm_reclaim.config.gpu import Gpu as Gpu
from slurm_reclaim.config.retention import Retention as Retention
from slurm_reclaim.config.values import Bytes as Bytes
from slurm_reclaim.config.values import Path as Path
from slurm_reclaim.config.values import Seconds as Seconds
from slurm_reclaim.config.values import setting as setting
from slurm_reclaim.model.notice import Channel

CHANNELS = tuple(channel.value for channel in Channel)


@dataclass(frozen=True)
class Controller:
    """[controller]: reclaimd, on the slurmctld host."""

    host: str = setting("localhost", "Host name under which agents and users reach reclaimd.")
    port: int = setting(6828, "TCP port of reclaimd.", least=1, most=65535)
    listen: str = setting("0.0.0.0", "Address to listen on.")
    user: str = setting(
        "slurm-reclaim", "Account reclaimd runs as; agents take orders from no other but root."
    )
    verify_nodes: bool = setting(
        True,
        "Take what is said of a node from that node's own addresses only. false: root of any node "
        "may speak, and give away sessions, for every other.",
    )
    node_addresses: list[str] = setting(
        [],
        "Addresses of nodes besides those that NodeAddr and NodeHostName resolve to: of a second "
        "network, or of the gateway that nodes are seen as.",
        example='["n[1-64]=10.2.0.0/16", "gpu7=10.3.0.7"]',
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
    bin: Path = setting(
        Path("/usr/bin"), "Directory of squeue, scontrol, scancel, sinfo and sacctmgr."
    )
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
    harmless_files: list[str] = setting(
        ["*.log", "history.sqlite", "nbsignatures.db"],
        "Files that may change while a session sleeps: shell patterns of names, or of whole paths "
        "where they have a slash. Files that are only appended to always may.",
    )
    preflight: Seconds = setting(
        Seconds(900),
        "How often sessions are looked at for what can't be saved; first soon after their start.",
        least=10,
    )
    silent_after: Seconds = setting(
        Seconds(60), "An agent not heard of for this long is down.", least=2
    )


@dataclass(frozen=True)
class Store:
    """[store]: Where checkpoints are kept. Root-only, on storage every compute node mounts."""

    path: Path = setting(Path("/var/spool/slurm-reclaim"), "Directory of the checkpoints.")
    min_free: Bytes = setting(Bytes(1 << 30), "Space that must stay free after a dump.")
    remote: str = setting(
        "",
        "Where checkpoints are kept instead, docs/storage-remote.md: s3:// or gs://, bucket and "
        "prefix. `path` is a directory of each node then, for staging and as a cache.",
        example="s3://bucket/prefix",
    )
    remote_options: Path = setting(
        Path(""),
        "JSON file with keys and other options for fsspec, root's alone (0600).",
        example="/etc/slurm-reclaim/remote.json",
    )
    upload: str = setting(
        "before",
        "before: a checkpoint counts once `remote` has it; after: the GPU is freed at once, and "
        "the session can be restored on its own node only until `remote` has it.",
        choices=("before", "after"),
    )
    remote_timeout: Seconds = setting(
        Seconds(1800), "The way of one checkpoint to `remote`, or back, takes no longer.", least=1
    )
    keys: Path = setting(
        Path("/etc/slurm-reclaim/store.keys"),
        "File of the keys that seal checkpoints, root's alone and the same on every node; made "
        "with `reclaim key new`.",
    )
    encrypt: bool = setting(
        False, "Encrypt what is stored; the keys for it are kept in the sealed manifests."
    )


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
class Idle:
    """[idle]: What counts as idle, and for how long; docs/policy.md has the whole of it."""

    window: Seconds = setting(
        Seconds(2700),
        "Every signal known and below its floor for this long: idle. Counted from the last use.",
        least=1,
    )
    grace: Seconds = setting(Seconds(900), "Time between the warning and the hibernation.", least=1)
    gap: Seconds = setting(
        Seconds(300),
        "Time in which a signal is unknown stops the clock; more than this starts it anew.",
    )
    min_age: Seconds = setting(Seconds(1800), "A session younger than this is left alone.")
    cooldown: Seconds = setting(
        Seconds(3600), "After a warning that came to nothing: no new one for this long."
    )
    keep: Seconds = setting(Seconds(14400), "What `reclaim keep` gives without --for.", least=60)
    keep_most: Seconds = setting(Seconds(86400), "The most that `reclaim keep --for` gives.")
    busy_report: Seconds = setting(
        Seconds(10800), "A kernel busy for this long that uses no CPU and no GPU is reported."
    )
    gpu_floor: float = setting(1.0, "SM utilization in percent; use begins here.", least=0)
    gpu_memory_floor: float = setting(1.0, "GPU memory bandwidth in percent.", least=0)
    gpu_codec_floor: float = setting(1.0, "GPU encoder or decoder in percent.", least=0)
    gpu_pcie_floor: Bytes = setting(Bytes(5 << 20), "Bytes per second to and from a GPU.")
    cpu_floor: float = setting(0.05, "Cores, as an average over a minute.", least=0)
    io_floor: Bytes = setting(Bytes(64 << 10), "Bytes per second, as an average over a minute.")
    network_floor: Bytes = setting(
        Bytes(16 << 10), "Bytes per second to other hosts, as an average over a minute."
    )
    optional: list[str] = setting(
        ["gpu-codec", "gpu-pcie"],
        "Signals that may be unknown: the others decide then. Not every card has these two.",
    )


@dataclass(frozen=True)
class Rule:
    """[[rule]]: Other terms for some sessions. First match wins; every given key must match; lists
    hold shell patterns. What a rule leaves out follows the desk, then [idle]."""

    name: str = setting("", "Name of the rule, for messages.")
    cluster: list[str] = setting([], "Cluster names.")
    partition: list[str] = setting([], "Partition names.")
    qos: list[str] = setting([], "QOS names.")
    account: list[str] = setting([], "Account names.")
    user: list[str] = setting([], "User names.", example='["alice"]')
    job_name: list[str] = setting([], "Job names.")
    gres: list[str] = setting([], "GRES the job was given.", example='["gpu:a100*"]')
    hours: str = setting(
        "", "Times of the week in which the rule holds.", example="Mon-Fri 08:00-18:00"
    )
    timezone: str = setting("", "Time zone of `hours`; empty: the controller's own.")
    mode: str = setting(
        "",
        "Mode of these sessions, never stronger than the cluster's; empty: the cluster's.",
        choices=("", "off", "shadow", "prod"),
    )
    action: str = setting(
        "hibernate",
        "What follows the warning; notify: nothing.",
        choices=("hibernate", "notify"),
    )
    window: Seconds | None = setting(None, "Instead of idle.window.", least=1, example="30m")
    grace: Seconds | None = setting(None, "Instead of idle.grace.", least=1, example="10m")
    gpu_floor: float | None = setting(None, "Instead of idle.gpu_floor.", least=0, example="1.0")
    gpu_memory_floor: float | None = setting(
        None, "Instead of idle.gpu_memory_floor.", least=0, example="1.0"
    )
    gpu_codec_floor: float | None = setting(
        None, "Instead of idle.gpu_codec_floor.", least=0, example="1.0"
    )
    gpu_pcie_floor: Bytes | None = setting(None, "Instead of idle.gpu_pcie_floor.", example="5MiB")
    cpu_floor: float | None = setting(None, "Instead of idle.cpu_floor.", least=0, example="0.1")
    io_floor: Bytes | None = setting(None, "Instead of idle.io_floor.", example="64KiB")
    network_floor: Bytes | None = setting(None, "Instead of idle.network_floor.", example="16KiB")
    optional: list[str] = setting([], "Signals that may be unknown, besides idle.optional.")


@dataclass(frozen=True)
class Desk:
    """[[desk]]: A group of accounts or partitions with a working week of its own. First match
    wins; lists hold shell patterns."""

    name: str = setting("", "Name of the desk, for messages.")
    account: list[str] = setting([], "Account names.", example='["biology"]')
    partition: list[str] = setting([], "Partition names.")
    timezone: str = setting(
        "", "Time zone of the hours, holidays and sweeps; empty: the controller's own.",
        example="Europe/Berlin",
    )  # fmt: skip
    hours: str = setting("", "Working hours; empty: always.", example="Mon-Fri 08:00-18:00")
    holidays: list[str] = setting([], "Days without working hours.", example='["2026-12-25"]')
    window: Seconds | None = setting(
        None, "Idle window within working hours.", least=1, example="30m"
    )
    window_off: Seconds | None = setting(
        None, "Idle window outside of them.", least=1, example="20m"
    )
    grace: Seconds | None = setting(None, "Grace within working hours.", least=1, example="10m")
    grace_off: Seconds | None = setting(None, "Grace outside of them.", least=1, example="10m")
    sweeps: list[str] = setting(
        [], "Times at which all that is idle is reclaimed.", example='["19:00", "Fri 17:00"]'
    )
    sweep_window: Seconds = setting(
        Seconds(600), "Idle window in the half hour that follows a sweep's time.", least=1
    )


@dataclass(frozen=True)
class Cost:
    """[cost]: Grace weighted by what an idle session costs: TRES billing x price."""

    price: float = setting(0.0, "Price of one billing unit for an hour; 0: no weighting.", least=0)
    par: float = setting(1.0, "Cost per hour at which the grace is as configured.", least=0.0001)
    shortest: Seconds = setting(Seconds(300), "Least grace of the costliest session.", least=1)
    longest: Seconds = setting(Seconds(3600), "Most grace of the cheapest session.", least=1)


@dataclass(frozen=True)
class Limits:
    """[limits]: How much is hibernated at once, and when to stop."""

    per_node: int = setting(2, "Hibernations at once on one node.", least=1)
    per_store: int = setting(16, "Hibernations at once in the whole store.", least=1)
    per_hour: int = setting(500, "Hibernations begun within an hour.", least=1)
    brake_span: Seconds = setting(Seconds(3600), "Time over which the brake counts.", least=60)
    brake_least: int = setting(10, "Fewer cases than this pull no brake.", least=1)
    brake_owners: int = setting(3, "Nor do the cases of fewer owners than this.", least=1)
    brake_failures: float = setting(
        0.2,
        "Share of hibernations that failed which stops all of them, the mean of each owner's.",
        least=0,
        most=1,
    )
    brake_keeps: float = setting(
        0.5,
        "Share of warnings answered by an owner who was there after all, the mean of each owner's.",
        least=0,
        most=1,
    )


@dataclass(frozen=True)
class Notices:
    """[notice]: How owners and admins are told."""

    channels: list[str] = setting(
        ["terminal", "comment"],
        "Ways that are tried; comment is what squeue shows.",
        choices=CHANNELS,
    )
    enough: list[str] = setting(
        ["terminal", "mail", "webhook", "hook"],
        "Without a confirmed delivery by one of these nothing is hibernated.",
        choices=CHANNELS,
    )
    texts: Path = setting(
        Path("/etc/slurm-reclaim/notices"), "Directory of the texts; missing ones are built in."
    )
    timeout: Seconds = setting(Seconds(10), "For one delivery by one channel.", least=1, most=300)
    smtp_host: str = setting("localhost", "SMTP server.")
    smtp_port: int = setting(25, "Its port.", least=1, most=65535)
    smtp_tls: str = setting("none", "Encryption.", choices=("none", "starttls", "tls"))
    mail_from: str = setting("slurm-reclaim@localhost", "Sender of mails.")
    mail_to: str = setting("{user}", "Address of an owner.", example="{user}@example.org")
    admins: list[str] = setting([], "Addresses that are told of the brake.")
    webhook: str = setting("", "URL that gets every notice as JSON by POST.")
    webhook_secret: Path = setting(
        Path(""), "File, readable by controller.user only, whose content signs the webhook's body."
    )
    hooks: Path = setting(
        Path("/etc/slurm-reclaim/hooks.d"), "Directory of programs that get every notice as JSON."
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
    gres: list[str] = setting([], "GPUs: gpu; gpu:a100 only by --gpus=a100:N.", example='["gpu*"]')


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
    gpu: Gpu = field(default_factory=Gpu)
    store: Store = field(default_factory=Store)
    session: Sessions = field(default_factory=Sessions)
    idle: Idle = field(default_factory=Idle)
    cost: Cost = field(default_factory=Cost)
    limits: Limits = field(default_factory=Limits)
    retention: Retention = field(default_factory=Retention)
    notice: Notices = field(default_factory=Notices)
    logging: Logging = field(default_factory=Logging)
    adopt: list[Adopt] = field(default_factory=list)
    rule: list[Rule] = field(default_factory=list)
    desk: list[Desk] = field(default_factory=list)


DEFAULT_FILE = "/etc/slurm-reclaim/slurm-reclaim.toml"
