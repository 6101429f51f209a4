"""What owners and admins are told, by which ways, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class NoticeKind(str, Enum):
    """`warning`: the session will be hibernated at `deadline` unless its owner answers;
    `withdrawn`: a warning is void; `hibernated`: done, and how to come back; `not-hibernated`: it
    was tried and the session runs on; `blocked`: it could not be hibernated, and why; `idle`: it
    is idle and nothing follows (action = "notify"); `expiry`: it is hibernated and ends at
    `deadline`, unless it is restored before; `upgrade`: after what the admins will do to the nodes,
    by `deadline`, it can't be restored; `unrestorable`: no node can restore it; `brake`: to the
    admins, nothing is hibernated any more; `stranded`: to the admins, sessions that no node can
    restore."""

    WARNING = "warning"
    WITHDRAWN = "withdrawn"
    HIBERNATED = "hibernated"
    NOT_HIBERNATED = "not-hibernated"
    BLOCKED = "blocked"
    IDLE = "idle"
    EXPIRY = "expiry"
    UPGRADE = "upgrade"
    UNRESTORABLE = "unrestorable"
    BRAKE = "brake"
    STRANDED = "stranded"


TO_ADMINS = frozenset({NoticeKind.BRAKE, NoticeKind.STRANDED})


class Channel(str, Enum):
    """Ways to a person. `terminal`: the session's own terminals, by its agent; `comment`: Slurm's
    Comment field (squeue); the others go out from the controller."""

    TERMINAL = "terminal"
    COMMENT = "comment"
    MAIL = "mail"
    WEBHOOK = "webhook"
    HOOK = "hook"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Notice:
    """`id` is the same for every try to deliver this notice, and unlike that of any other;
    `deadline` Unix seconds (0: none); `idle` seconds; `vram` bytes of GPU memory held, of a
    hibernated session those that it held."""

    id: str
    kind: NoticeKind
    cluster: str = ""
    job: str = ""
    job_id: int = 0
    job_name: str = ""
    user: str = ""
    uid: int = -1
    node: str = ""
    partition: str = ""
    account: str = ""
    rule: str = ""
    reason: str = ""
    deadline: float = 0.0
    idle: float = 0.0
    vram: int = 0
    tres: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One try by one channel. `ok` only where the far side confirmed it: the SMTP server took the
    mail, the webhook answered 2xx, the hook exited 0, a terminal took the text."""

    channel: Channel
    ok: bool
    to: str = ""
    error: str = ""
    at: float = 0.0
