"""Whose the processes on a card are. NVML gives PIDs as the agent sees them."""

from __future__ import annotations

from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.adapters.proc.steps import job_of


class Owners:
    """Looked up once for each PID: make a new one for each reading."""

    def __init__(self, init: int, relay: int) -> None:
        self._session = _namespace(init)
        self._job = job_of(relay)
        self._known: dict[int, str] = {}
        # Else nothing can be said of any process: the session ends, or /proc is closed to us.
        self.told = bool(self._session or self._job)

    def of(self, pid: int) -> str:
        """`job` (the session's or another step's), `zombie` (the job's, but dead), `gone`,
        `foreign`, or `unknown`."""
        if pid not in self._known:
            self._known[pid] = self._look(pid)
        return self._known[pid]

    def name(self, pid: int) -> str:
        try:
            comm = tree.kernel_text(tree.PROC / str(pid) / "comm").rstrip("\n")
        except OSError:
            return f"(pid {pid}, gone)"
        dead = ", zombie" if self._dead(pid) else ""
        return f"{comm} (pid {pid}{dead})"

    def _look(self, pid: int) -> str:
        if not self.told:
            return "unknown"
        namespace = _namespace(pid)
        if not namespace and not (tree.PROC / str(pid)).exists():
            return "gone"
        dead = self._dead(pid)
        # A zombie has left its cgroup on v2 and may show no namespace.
        ours = bool(self._session) and namespace == self._session
        if not ours and self._job:
            ours = job_of(pid) == self._job
        if not ours:
            return "foreign"
        return "zombie" if dead else "job"

    def _dead(self, pid: int) -> bool:
        try:
            stat = tree.kernel_text(tree.PROC / str(pid) / "stat")
        except OSError:
            return True
        return stat.rpartition(")")[2].split()[0] in "ZX"


def _namespace(pid: int) -> int:
    try:
        return tree.namespace(pid, "pid")
    except OSError:
        return 0
