"""The GPU half of a dump and of a restore: the state itself, and the memory of the job that it
needs on the host meanwhile."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from weakref import WeakValueDictionary

from slurm_reclaim.adapters.cuda.state import CudaState
from slurm_reclaim.adapters.proc import tree
from slurm_reclaim.adapters.proc.memory_limit import MemoryLimit, copied
from slurm_reclaim.adapters.proc.tree import Process
from slurm_reclaim.config.schema import Gpu
from slurm_reclaim.errors import DumpFailed, GpuNotGivenBack, StoreUnavailable
from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.checkpoint import GpuNeeds, Needs
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living

# Bytes of the job's memory; it works in the job's cgroups.
_CRIU_ITSELF = 64 << 20
# By job id; several looks may be at one session. Each lives as long as somebody has it.
_SETTLING: WeakValueDictionary[int, threading.Lock] = WeakValueDictionary()
_FINDING = threading.Lock()


def _settling(job_id: int) -> threading.Lock:
    with _FINDING:
        return _SETTLING.setdefault(job_id, threading.Lock())


class GpuHalf:
    """Of one session, for one dump or one restore; the arguments are SessionTree's."""

    def __init__(
        self,
        session: NodeSession,
        config: Gpu,
        save: Callable[[], None],
        note_worker: Callable[[int], None],
        on_gpus: Callable[[], int],
    ) -> None:
        self._session = session
        self._save = save
        self._on_gpus = on_gpus
        self._state = CudaState(session, config, save, note_worker)
        self.limit = MemoryLimit(session, config.raise_memory, save)
        # PIDs of those that were told to stop again a moment ago: they may still show as running.
        self.stopping: set[int] = set()

    @property
    def devices(self) -> frozenset[str]:
        """Device files that `blockers` has spoken for."""
        return self._state.devices

    @property
    def held(self) -> int:
        """Bytes of GPU memory, which the dump will find in the session's own."""
        return max(self._state.held, self._on_gpus())

    def needs(self) -> GpuNeeds | None:
        return self._state.needs()

    def blockers(self, members: Sequence[Process]) -> list[Blocker]:
        self._settle(members)
        return self._state.blockers(members)

    def _settle(self, members: Sequence[Process]) -> None:
        """What could not be given back after an earlier failure is tried again now and then."""
        session = self._session
        if not (session.gpu_taken or session.limits):
            return
        with _settling(session.job_id):
            if session.living is not Living.RUNNING:
                return
            with suppress(GpuNotGivenBack, StoreUnavailable):
                self._state.give_back(members)
                self.limit.put_back()
                self._save()

    # -- saving -------------------------------------------------------------------------------

    def take(self, members: Callable[[], Sequence[Process]]) -> None:
        """Before CRIU: what is on a card it can't see, and a frozen process can't be locked. Raises
        DumpFailed."""
        # A look that began before this is about what an earlier one has left: it would undo what
        # is done here, and take it off the record.
        with _settling(self._session.job_id):
            pass
        try:
            if self._state.held:
                self.limit.make_room(copied(self._state.held))
        except OSError as error:
            raise DumpFailed(f"its memory limit: {error.filename}: {error.strerror}") from error
        self._state.take(members)

    def see_nobody_came(self) -> None:
        """With the tree frozen by CRIU. Raises DumpFailed."""
        self._state.see_nobody_came()

    def give_back(self, members: Sequence[Process]) -> None:
        """Those that are without their state are continued for it, and no others: as long as
        these wait, what was dumped is still the session. GpuNotGivenBack: all are as they were."""
        without = self._state.taken(members)
        frozen = [p for p in without if p.state in "Tt"]
        tree.signal_all(frozen, signal.SIGCONT)
        try:
            self._state.give_back(members)
        except GpuNotGivenBack:
            tree.signal_all(frozen, signal.SIGSTOP)
            self.stopping = {p.pid for p in frozen}
            raise

    # -- after a restore ----------------------------------------------------------------------

    def expect(self, needs: Needs) -> None:
        """Room for what CRIU is about to bring back. Raises StoreUnavailable, OSError."""
        if needs.gpu is not None:
            spare = copied(needs.gpu.used) - needs.gpu.used + _CRIU_ITSELF
            self.limit.make_room(needs.memory + spare)

    def bring_back(self, needs: Needs, members: Sequence[Process]) -> None:
        """RestoreFailed."""
        if needs.gpu is not None:
            self._state.bring_back(needs.gpu, members)

    def whole(self, needs: Needs, living: Sequence[Process]) -> bool:
        """Whether a restore that nobody saw the end of had brought all of it back."""
        if not self._state.whole(needs.gpu, living):
            return False
        self.limit.put_back()
        return True

    def over(self) -> None:
        """The processes are no more."""
        self._session.gpu_taken = ()
        self.limit.put_back()
