"""The GPU state of one session: taken to the host before the dump, given back, or brought back
after a restore.

    saving      lock all -> anything new? -> copy all to the host -> the cards seen free
    back        whatever of it was done, undone from its end; every process seen running
    restore     room on each card -> all copied back, onto other cards by one map -> unlock all
                -> every process seen running

The driver's state of a process goes running -> locked -> checkpointed and back the same way; each
step is asked of the driver anew and none is inferred from what we did.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from slurm_reclaim.adapters.cuda import blockers, cards, holders, undo
from slurm_reclaim.adapters.cuda.driver import Driver, NoWay, told
from slurm_reclaim.adapters.cuda.holders import Holder
from slurm_reclaim.adapters.gpu import given
from slurm_reclaim.adapters.gpu.owners import Owners
from slurm_reclaim.adapters.gpu.watch import NvmlWatch, nvml
from slurm_reclaim.adapters.proc.tree import Process
from slurm_reclaim.config.schema import Gpu
from slurm_reclaim.errors import DumpFailed, GpuNotGivenBack, GpuUnavailable, RestoreFailed
from slurm_reclaim.model import extras
from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.checkpoint import GpuNeeds
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.policy.cards import pairs

log = logging.getLogger(__name__)

_SOON = 5.0  # seconds for NVML where nothing else speaks of a GPU
_FREE_WITHIN = 15.0  # seconds for NVML to show what a checkpoint has let go


class CudaState:
    """`save` makes the session's record durable; `note` is told the child that is at work, as
    SessionTree's `note_worker`. `watch` and `environment` are the agent's own but for tests."""

    def __init__(
        self,
        session: NodeSession,
        config: Gpu,
        save: Callable[[], None],
        note: Callable[[int], None],
        watch: NvmlWatch | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._session = session
        self._config = config
        self._save = save
        self._note = note
        self._watch = watch or nvml()
        self._environment = environment
        self._processes: list[Process] = []
        self._seen: cards.Seen | None = None
        self.devices: frozenset[str] = frozenset()

    def _driver(self, note: Callable[[int], None] | None = None) -> Driver:
        return Driver(self._config.cuda_checkpoint, note or self._note, self._environment)

    # -- looking ------------------------------------------------------------------------------

    def blockers(self, members: Sequence[Process]) -> list[Blocker]:
        """What is found here is what the next calls go by. `devices` are then the device files
        that it speaks for."""
        self._processes, self._seen = [], None
        found = holders.find(members)
        opened = frozenset(path for holder in found for path in holder.devices)
        self.devices = opened
        if self._session.gpus is None and not opened:
            return []
        if not found:
            return self._unseen(())
        try:
            with self._driver(lambda _: None) as driver:
                none = {h.process.pid: driver.why_none(h.process) for h in found}
                known = [h for h in found if not none[h.process.pid]]
                states = {h.process.pid: driver.state(h.process) for h in known}
        except NoWay as error:
            return [_no_way(error)]
        except GpuUnavailable as error:
            what = f"which processes use a GPU is not known: {error.message}"
            return [Blocker("gpu-unknown", what, "see the agent's log")]
        each = (b for h in found for b in blockers.of_holder(h, none[h.process.pid]))
        return list(dict.fromkeys([*each, *self._of(known, states), *self._unseen(known)]))

    def _unseen(self, known: Sequence[Holder]) -> list[Blocker]:
        """What of the session NVML shows on a card and nobody else does: a copy of the driver's
        library by another name, a zombie. `known`: those with CUDA state."""
        pids = self._seen.pids if self._seen is not None else self._on_cards()
        if not (others := pids - {h.process.pid for h in known}):
            return []
        name = Owners(self._session.init, self._session.relay).name(min(others))
        what = f"{name} is on a GPU, and the driver knows of no CUDA state of it"
        return [Blocker("gpu-unknown", what, "end it")]

    def _on_cards(self) -> frozenset[int]:
        """PIDs, as far as they can be told."""
        if self._session.gpus is None:
            return frozenset()
        try:
            return cards.ours(self._session, cards.fresh(self._watch, _SOON))
        except GpuUnavailable as error:
            log.info("job=%s: who is on its cards is not known: %s", self._session.job_id, error)
            return frozenset()

    def _of(self, known: Sequence[Holder], states: Mapping[int, str]) -> Iterable[Blocker]:
        self._processes = [h.process for h in known]
        for holder in known:
            state = states[holder.process.pid]
            if state not in ("running", "gone"):
                what = f"the GPU state of {holder.process} is {state}"
                yield Blocker("gpu-state", what, "another program saves or has saved it")
        if not known:
            return
        yield from blockers.of_peers(known)
        mig: list[str] = []
        try:
            self._seen = cards.look(self._session, self._watch, [h.process.pid for h in known])
            mig = [card.uuid for card in self._seen.cards if card.mig]
            yield from blockers.of_driver(self._seen.driver, known)
        except GpuUnavailable as error:
            if self._session.gpus is not None:
                what = f"what the session has on its GPUs is not known: {error.message}"
                yield Blocker("gpu-memory-unknown", what, "see `reclaim check` on its node")
        yield from blockers.of_grant(self._session.gpus, mig)

    @property
    def held(self) -> int:
        """Bytes of GPU memory that it had at the last look."""
        return self._seen.used if self._seen is not None else 0

    def needs(self) -> GpuNeeds | None:
        """For the manifest."""
        if self._seen is None or not self._processes:
            return None
        inner = tuple(p.inner for p in self._processes)
        return GpuNeeds(self._seen.driver, self._seen.cards, inner)

    # -- saving -------------------------------------------------------------------------------

    def take(self, members: Callable[[], Sequence[Process]]) -> None:
        """To the host, so that no process of the session has anything on a card. `members`: who
        they are now. Raises DumpFailed; then, and before anything else, `give_back` is due."""
        session = self._session
        session.gpu_freed = 0
        if not self._processes:
            return
        session.gpu_taken = tuple(p.inner for p in self._processes)
        session.gpu_held = self.held
        self._save()
        try:
            with self._driver() as driver:
                for process in self._processes:
                    driver.lock(process, self._config.lock_timeout)
                self._see_nobody_new(driver, members())
                for process in self._processes:
                    driver.checkpoint(process, self._limit())
                self._see(driver, "checkpointed")
            free = self._see_free()
        except GpuUnavailable as error:
            raise DumpFailed(f"its GPU state could not be saved: {told(error)}") from error
        session.gpu_freed = session.gpu_held if free else 0
        self._save()

    def _limit(self) -> float:
        gib = self._session.gpu_held / (1 << 30)
        return self._config.call_timeout + gib * self._config.time_per_gib

    def _see_nobody_new(self, driver: Driver, members: Sequence[Process]) -> None:
        known = {(p.pid, p.start) for p in self._processes}
        for holder in holders.find(members):
            new = (holder.process.pid, holder.process.start) not in known
            if new and holder.devices:
                raise GpuUnavailable(f"{holder.process} has opened a GPU meanwhile")
            if new and driver.has_state(holder.process):
                raise GpuUnavailable(f"{holder.process} has begun to use CUDA meanwhile")

    def _see(self, driver: Driver, wanted: str) -> None:
        for process in self._processes:
            if (state := driver.state(process)) != wanted:
                raise GpuUnavailable(f"{process} is {state}, not {wanted}")

    def _see_free(self) -> bool:
        """CRIU must not begin, and nobody be told that the card is free, while it is not. False:
        one was lost after what was on it had come to the host, which is all the more to be saved
        then, for the card would not take it back."""
        deadline = time.monotonic() + _FREE_WITHIN
        while pids := (seen := cards.look(self._session, self._watch, without_lost=True)).pids:
            if time.monotonic() > deadline:
                raise GpuUnavailable(f"NVML still shows PID {min(pids)} of it on a card")
            time.sleep(0.1)
        return self._seen is None or len(seen.cards) == len(self._seen.cards)

    def see_nobody_came(self) -> None:
        """With the tree frozen: who has begun with CUDA after the last look has it all on a card
        and nothing of it in the dump. Raises DumpFailed."""
        try:
            if self._processes:
                pids = cards.look(self._session, self._watch, without_lost=True).pids
            else:
                pids = self._on_cards()
        except GpuUnavailable as error:
            raise DumpFailed(f"who is on its cards is not known: {error.message}") from error
        if pids:
            name = Owners(self._session.init, self._session.relay).name(min(pids))
            raise DumpFailed(f"{name} has begun to use CUDA meanwhile")

    # -- back ---------------------------------------------------------------------------------

    def taken(self, members: Iterable[Process]) -> list[Process]:
        """Those of the living that may be without their GPU state; they must be able to run to
        get it back."""
        wanted = set(self._session.gpu_taken)
        return [p for p in members if p.inner in wanted and p.state not in "ZX"]

    def give_back(self, members: Iterable[Process]) -> None:
        """Every process that was locked is seen running again, wherever it was left. Raises
        GpuNotGivenBack, which names those that are not."""
        processes = self.taken(members)[::-1]
        left = undo.all_of(self._driver, processes, self._limit())
        if left:
            log.error("job=%s: GPU state not given back: %s", self._session.job_id, left)
            named = "; ".join(f"{name}: {why}" for name, why in left.items())
            raise GpuNotGivenBack(f"its GPU state could not be given back: {named}")
        self._session.gpu_taken, self._session.gpu_freed = (), 0

    # -- after a restore ----------------------------------------------------------------------

    def bring_back(self, gpu: GpuNeeds, members: Sequence[Process]) -> None:
        """Of processes that CRIU has just restored: onto the cards that the job can open now.
        Raises RestoreFailed; nothing is tried a second time, since after one that ran out of
        memory the driver takes no other (NVIDIA/cuda-checkpoint issue 44)."""
        self._session.gpu_held = gpu.used
        by_inner = {p.inner: p for p in members if p.state not in "ZX"}
        if missing := [inner for inner in gpu.processes if inner not in by_inner]:
            raise RestoreFailed(f"processes with GPU state are missing: {missing}")
        self._processes = [by_inner[inner] for inner in gpu.processes]
        # Once more: others may have come onto the cards since the session was seen to fit.
        try:
            moved = self._map(gpu)
        except GpuUnavailable as error:
            raise RestoreFailed(error.message) from error
        if lacking := given.lacks(gpu, self._session.gpus, self._watch):
            raise RestoreFailed("; ".join(lacking))
        try:
            self._bring_back(moved)
        except GpuUnavailable as error:
            raise RestoreFailed(f"its GPU state did not come back: {told(error)}") from error

    def _bring_back(self, moved: Sequence[tuple[str, str]]) -> None:
        with self._driver() as driver:
            self._see(driver, "checkpointed")
            for process in self._processes:
                driver.restore(process, self._limit(), moved)
            for process in self._processes:
                driver.unlock(process)
            self._see(driver, "running")

    def _map(self, gpu: GpuNeeds) -> list[tuple[str, str]]:
        """Every saved card and the one that takes its place; none where all are the same ones."""
        found = pairs(gpu.cards, cards.whole(self._session, cards.fresh(self._watch)))
        if not found:
            raise GpuUnavailable("the job's GPUs are not those that the checkpoint needs")
        log.info("job=%s: GPUs %s", self._session.job_id, found)
        return [] if all(old == new for old, new in found.items()) else list(found.items())

    def whole(self, gpu: GpuNeeds | None, members: Sequence[Process]) -> bool:
        """Whether every process of a restored session has its GPU state and is running; what
        can't be told is not."""
        if gpu is None:
            return True
        wanted = set(gpu.processes)
        self._processes = [p for p in members if p.inner in wanted]
        try:
            with self._driver() as driver:
                self._see(driver, "running")
        except GpuUnavailable as error:
            log.warning("job=%s: %s", self._session.job_id, error)
            return False
        return len(self._processes) == len(wanted)


def _no_way(error: NoWay) -> Blocker:
    if error.missing:
        hint = f"on its node: {extras.install('cuda')}, or install cuda-checkpoint"
        return Blocker("gpu-tools", error.message, hint)
    return Blocker("gpu-driver", error.message, "see `reclaim check` on its node")
