"""What an upgrade of nodes would do to the checkpoints of hibernated sessions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Upgrade:
    """`nodes` as Slurm writes them (`n[1-4]`; "": all). What they will have then: versions of the
    GPU `driver`, the `kernel`, `criu` and `glibc`, "" where that stays as it is. `notify`: tell the
    owners of what is lost; `deadline` Unix seconds when it will be done (0: not said)."""

    nodes: str = ""
    driver: str = ""
    kernel: str = ""
    criu: str = ""
    glibc: str = ""
    notify: bool = False
    deadline: float = 0.0


@dataclass(frozen=True, slots=True)
class Affected:
    """A hibernated session that fewer nodes can restore afterwards. `lost`: none can; `left`: those
    that can, as Slurm writes them; `why` of one of the others; `told`: the ways by which its owner
    was told, `failed` what became of the others."""

    session: str
    job: str
    user: str
    state: str
    lost: bool
    why: str
    left: str = ""
    vram: int = 0
    told: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Forecast:
    """`looked`: hibernated sessions that were looked at; `unknown`: nodes whose agents were never
    heard of since the controller's start, which count for nothing."""

    looked: int = 0
    unknown: str = ""
    affected: tuple[Affected, ...] = ()
