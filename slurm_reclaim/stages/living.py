"""The living sessions, found by id, by job, by node and by state without a look at all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from slurm_reclaim.model.ids import SessionId
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.session import Session


class Living(dict[SessionId, Session]):
    """Change it only by `living[id] = session` and `living.pop(id, None)`."""

    def __init__(self) -> None:
        super().__init__()
        self._by_job: dict[int, set[SessionId]] = {}
        self._by_node: dict[str, set[SessionId]] = {}
        self._by_state: dict[State, set[SessionId]] = {}

    def __setitem__(self, id: SessionId, session: Session) -> None:
        before = self.get(id)
        super().__setitem__(id, session)
        if before is None:
            self._by_job.setdefault(id.job_id, set()).add(id)
        if before is None or before.node != session.node:
            if before is not None:
                _take_out(self._by_node, before.node, id)
            self._by_node.setdefault(session.node, set()).add(id)
        if before is None or before.state is not session.state:
            if before is not None:
                _take_out(self._by_state, before.state, id)
            self._by_state.setdefault(session.state, set()).add(id)

    def pop(self, id: SessionId, *default: Any) -> Any:
        session = super().pop(id, *default)
        if isinstance(session, Session):
            _take_out(self._by_job, id.job_id, id)
            _take_out(self._by_node, session.node, id)
            _take_out(self._by_state, session.state, id)
        return session

    def of_job(self, job_id: int) -> Iterator[Session]:
        return (self[id] for id in sorted(self._by_job.get(job_id, ())))

    def of_state(self, state: State) -> Iterator[Session]:
        """In no order."""
        return (self[id] for id in self._by_state.get(state, ()))

    def of_node(self, node: str) -> Iterator[Session]:
        return (self[id] for id in sorted(self._by_node.get(node, ())))


def _take_out(index: dict[Any, set[SessionId]], key: object, id: SessionId) -> None:
    ids = index[key]
    ids.discard(id)
    if not ids:
        del index[key]
