"""Why a session is judged as it is (GET /v1/sessions/{job}/explain)."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_reclaim.model.sample import GpuHeld


@dataclass(frozen=True, slots=True)
class Vote:
    """One signal: `value` as it is judged (an average over a minute where `averaged`), None where
    it is unknown; `floor` where use begins; `used`: Unix seconds of its last use seen (0: none);
    `vote`: use, quiet, unknown, or unknown-but-optional."""

    signal: str
    value: float | None
    floor: float
    averaged: bool
    used: float
    vote: str
    what: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """`standing` and `reason`: the decision; `idle`, `window`, `grace` seconds; `due`, `measured`,
    `deadline`, `kept_until` Unix seconds (0: not); `guard`: why nothing follows yet ("": nothing
    stands in the way); `follows`: what happens next, in words."""

    job: str
    state: str
    mode: str
    standing: str
    reason: str
    idle: float
    due: float
    measured: float
    window: float
    grace: float
    rule: str
    desk: str
    why: str
    action: str
    guard: str
    deadline: float
    kept_until: float
    follows: str
    votes: tuple[Vote, ...] = ()
    gpus: tuple[GpuHeld, ...] = ()
