"""What we write into Slurm's own fields, for the people who read squeue and sacct.

Other tools keep data in AdminComment (jobstats does): only our own marked part is ever replaced.
"""

from __future__ import annotations

import re

from slurm_reclaim.model.printable import line
from slurm_reclaim.model.session import Session
from slurm_reclaim.model.words import amount, clock

_MOST_REASON = 500  # characters; all of it is in `reclaim show`
_OURS = re.compile(r"\s*\[slurm-reclaim: [^\]]*\]")


_COMMENT = re.compile(r"(hibernated \d{4}-|not restored: |idle; will be hibernated )")


def is_ours(comment: str) -> bool:
    """Whether we wrote it, and nobody has written another one since."""
    return _COMMENT.match(comment) is not None


def to_be_hibernated(at: float, job: str) -> str:
    return f"idle; will be hibernated {clock(at)} unless it is used; keep: reclaim keep {job}"


def merged(admin_comment: str, ours: str) -> str:
    """`admin_comment` with our part replaced by `ours`; "" takes our part away."""
    others = _OURS.sub("", admin_comment)
    if not ours:
        return others
    part = f"[slurm-reclaim: {ours.translate(_FLAT)}]"
    return f"{others} {part}" if others else part


# A bracket or a line end in the text would make our part end early.
_FLAT = str.maketrans({"[": "(", "]": ")", "\n": " ", "\r": " ", "\t": " "})


def hibernated(session: Session, at: float) -> str:
    size = f", {amount(session.checkpoint_bytes)}" if session.checkpoint_bytes else ""
    freed = f", {freed_vram(session.freed_gpu)}" if session.freed_gpu else ""
    return f"hibernated {clock(at)}{size}{freed}; restore: reclaim restore {session.job}"


def freed_vram(size: int) -> str:
    return f"freed {amount(size)} VRAM"


def held_again(session: Session, reason: str) -> str:
    why = line(reason, _MOST_REASON)
    return f"not restored: {why}; again: reclaim restore {session.job}".translate(_FLAT)


def committed_as(
    size: int, why: str, seconds: float = 0.0, stored: int = 0, freed_gpu: int = 0
) -> str:
    took = f" in {seconds:.1f} s" if seconds else ""
    new = f" ({amount(stored)} new in the store)" if stored else ""
    freed = f", {freed_vram(freed_gpu)}" if freed_gpu else ""
    text = f"checkpoint of {amount(size)}{new} complete and verified{took}{freed}"
    return f"{text}; {why}" if why else text
