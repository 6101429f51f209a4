"""What a look at a session finds, and what of it is kept."""

from __future__ import annotations

from typing import Any

from slurm_reclaim.errors import StoreUnavailable
from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living
from slurm_reclaim.stages.node_preflight import preflight


class Stand:
    """Tree, store and clock of one session."""

    def __init__(self, *names: str, free: int = 1 << 20) -> None:
        self.found = [Blocker(name, name) for name in names]
        self.free = free

    def blockers(self) -> list[Blocker]:
        return self.found

    def memory(self) -> int:
        return 1000

    def reserve(self, size: int) -> None:
        if size > self.free:
            raise StoreUnavailable(f"{size} bytes are too many", hint="make room")

    def now(self) -> float:
        return 5000.0


def look(stand: Any, living: Living = Living.RUNNING) -> tuple[list[str], NodeSession]:
    session = NodeSession(7, 2001, 2001, 0, "fresh", living)
    return [b.name for b in preflight(session, stand, stand, stand)], session


def test_blockers_are_kept_with_the_session() -> None:
    names, session = look(Stand("traced"))
    assert names == ["traced"]
    assert ([b.name for b in session.blockers], session.looked) == (["traced"], 5000.0)


def test_a_store_without_room_is_one() -> None:
    names, session = look(Stand(free=999))
    assert names == ["store-space"]
    assert session.blockers[0].hint == "make room"
    assert look(Stand("no-process", free=0))[0] == ["no-process"], "nothing is to be stored"


def test_what_passes_in_a_moment_is_said_and_not_kept() -> None:
    names, session = look(Stand("in-kernel"))
    assert names == ["in-kernel"]
    assert session.blockers == ()


def test_a_session_that_has_moved_on_is_left_as_it_is() -> None:
    _, session = look(Stand("traced"), Living.DUMPING)
    assert (session.blockers, session.looked) == ((), 0.0)
