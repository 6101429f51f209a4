"""A checkpoint explains itself: the manifest is all that is needed to restore it.

Layout: `<store>/<cluster>/<session folder>/<restart count>/` holds `index`, which tells where the
bytes of each stream (CRIU's images, the archive of /dev/shm and /tmp, job output files) are, and
`manifest.json`; `<session folder>/packs/` holds the bytes, shared by the checkpoints of the
session. A directory without manifest is no checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

MANIFEST_VERSION = 2
# Made once by the admin, in the store. Without it an unmounted file system looks like an empty
# store, and a job with an image like one without.
STORE_MARKER = ".slurm-reclaim-store"
# Where root of a node is not root on the store's file system (NFS with root_squash, and its like).
ROOT_REFUSED = (
    "where it is NFS with root_squash: export this one directory to the compute nodes with "
    "no_root_squash, or keep checkpoints in an object store (store.remote)"
)


@dataclass(frozen=True, slots=True)
class Part:
    """One file of the checkpoint: path relative to it, size in bytes, BLAKE3 digest (hex). Of a
    pack it is the digest of its table, which holds those of its frames."""

    path: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class Contents:
    """`parts` are the files in the checkpoint's directory, `packs` those in the session's `packs/`
    that it needs, its own among them. `seed` is that of the block hashes. `raw`: bytes of all
    streams; `stored`: bytes that this checkpoint has added to the store. `keys`: of each pack the
    wrapped key that it is encrypted with, "" where it is not; none at all where no pack is."""

    parts: tuple[Part, ...]
    packs: tuple[Part, ...]
    seed: int
    raw: int
    stored: int
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the kernel said about a process before the dump (/proc/PID/status)."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    cap_bounding: int
    no_new_privs: bool


@dataclass(frozen=True, slots=True)
class Rights:
    """What one thread may do, as the kernel shows it (/proc/PID/task/TID). `uids` and `gids` are
    real, effective, saved and file system's; capabilities are bit masks, `seccomp` the mode (2 is a
    filter), `label` that of the security module ("" where there is none). `dumpable`: its owner may
    look into it. `login`: the audit system's uid, -1 where there is none."""

    uids: tuple[int, ...]
    gids: tuple[int, ...]
    groups: tuple[int, ...]
    inheritable: int
    permitted: int
    effective: int
    bounding: int
    ambient: int
    no_new_privs: bool
    seccomp: int
    label: str
    dumpable: bool
    login: int


@dataclass(frozen=True, slots=True)
class Held:
    """The threads, by the ids that they have within the session, that had these rights."""

    rights: Rights
    threads: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A job output file: `path` as the session has it open, `saved` the name of the stream that
    holds what was in it, `size` its bytes then. `fds` are slurmstepd's: 1 stdout, 2 stderr."""

    path: str
    saved: str
    size: int
    fds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class File:
    """A regular file or directory that the processes have open or mapped, found by its path at the
    restore. `path` as it can be shown, `raw` base64 of its bytes where they are no UTF-8; `size` -1
    where unknown; `uses` are letters of `r`, `w`, `a` (written, to the end only), `m` (mapped),
    `x` (mapped to be run) and `d` (a directory); `mode` as stat(2) has it; `mtime` nanoseconds
    since the epoch, 0 where unknown. Of code: `build_id` (hex), or where it has none `digest` of
    samples of its content. `locks`: `flock` or `range`, `read` or `write`, first and last byte."""

    path: str
    size: int
    mode: int
    uses: str
    mtime: int = 0
    build_id: str = ""
    digest: str = ""
    raw: str = ""
    locks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuCard:
    """A GPU by NVML: its `uuid` (`GPU-...`) and `model` name, `memory` bytes it has and `used` of
    them that the session's processes held (0 of a node's fact). `mig`: it is cut into parts."""

    uuid: str
    model: str
    memory: int
    used: int = 0
    mig: bool = False


@dataclass(frozen=True, slots=True)
class GpuNeeds:
    """The CUDA half of a checkpoint. `driver`: version of the kernel driver that it was saved with,
    which a restore must find again; `cards`: every GPU that the job could open, in NVML's order,
    since the driver wants all of them back; `processes`: those with CUDA state, by the PIDs that
    they have within the session."""

    driver: str
    cards: tuple[GpuCard, ...]
    processes: tuple[int, ...]

    @property
    def used(self) -> int:
        """Bytes of GPU memory that the session held."""
        return sum(card.used for card in self.cards)


@dataclass(frozen=True, slots=True)
class Needs:
    """What the node of a restore must have. `cpu_flags` are names with spaces between them, those
    that programs can use; `xsave` bytes that the CPU saves of its registers at most (0: unknown);
    `glibc` version and `glibc_build` build-id of the C library that is mapped ("": none of the
    node's); `mounts` are `PLACE TYPE` of the file systems that its files lie on; `memory` and
    `hugepages` bytes; `listening` addresses like `tcp/127.0.0.1:8888`; `gpu` None where no process
    had CUDA state."""

    arch: str
    kernel: str
    criu: str
    max_pid: int
    memory: int
    listening: tuple[str, ...] = ()
    cpu_flags: str = ""
    xsave: int = 0
    glibc: str = ""
    glibc_build: str = ""
    mounts: tuple[str, ...] = ()
    hugepages: int = 0
    gpu: GpuNeeds | None = None

    @property
    def vram(self) -> int:
        """Bytes of GPU memory that the session held."""
        return self.gpu.used if self.gpu is not None else 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """`order`: the one that was carried out by it; a session that was restored in place is
    saved again under the same restart count. `rights`: of every thread in the image, as the
    kernel told them while it was frozen. Times are Unix seconds; clocks are nanoseconds of the
    dumped tree's own CLOCK_MONOTONIC and CLOCK_BOOTTIME at the freeze."""

    version: int
    session: str
    restarts: int
    job_id: int
    uid: int
    gid: int
    user: str
    node: str
    created: float
    reason: str
    root_pid: int
    credentials: Credentials
    monotonic: int
    boottime: int
    seccomp: bool
    private_tmp: bool
    contents: Contents
    outputs: tuple[OutputFile, ...]
    needs: Needs
    processes: int
    files: tuple[File, ...] = ()
    rights: tuple[Held, ...] = ()
    order: str = ""

    @property
    def size(self) -> int:
        """Bytes of the session, not of the store."""
        return self.contents.raw

    @property
    def packs(self) -> tuple[Part, ...]:
        return self.contents.packs
