"""The living sessions, found by id, by job and by node without a look at all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from slurm_reclaim.model.ids import SessionId
from slurm_reclaim.model.session import Session


class Living(dict[SessionId, Session]):
    """Change it only by `living[id] = session` and `living.pop(id, None)`."""

    def __init__(self) -> None:
        super().__init__()
        self._by_job: dict[int, set[SessionId]] = {}
        self._by_node: dict[str, set[SessionId]] = {}

    def __setitem__(self, id: SessionId, session: Session) -> None:
        before = self.get(id)
        super().__setitem__(id, session)
        if before is None:
            self._by_job.setdefault(id.job_id, set()).add(id)
        elif before.node == session.node:
            return
        else:
            _take_out(self._by_node, before.node, id)
        self._by_node.setdefault(session.node, set()).add(id)

    def pop(self, id: SessionId, *default: Any) -> Any:
        session = super().pop(id, *default)
        if isinstance(session, Session):
            _take_out(self._by_job, id.job_id, id)
            _take_out(self._by_node, session.node, id)
        return session

    def of_job(self, job_id: int) -> Iterator[Session]:
        return (self[id] for id in sorted(self._by_job.get(job_id, ())))

    def of_node(self, node: str) -> Iterator[Session]:
        return (self[id] for id in sorted(self._by_node.get(node, ())))


def _take_out(index: dict[Any, set[SessionId]], key: object, id: SessionId) -> None:
    ids = index[key]
    ids.discard(id)
    if not ids:
        del index[key]
