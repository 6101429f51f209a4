"""hibernate, on the node: preflight -> hold -> dump -> re-read activity -> commit -> kill.

Until the commit every failure gives the tree back as it was (S2, S5); after it the image is the
session, the tree is killed and the relay keeps the allocation until Slurm requeues the job. The
dump begins with the GPUs, and what was taken from them is given back first. Where a driver refuses
to, a dump that is complete is committed after all: then the image alone has the whole session.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_reclaim.errors import (
    CancelledByActivity,
    DumpFailed,
    GpuNotGivenBack,
    NotReclaimable,
    OperationFailed,
    ReclaimError,
    StaleOrder,
)
from slurm_reclaim.model.blocker import Blocker
from slurm_reclaim.model.checkpoint import Contents, Manifest
from slurm_reclaim.model.ids import SessionId, parse_session_id
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living, Order, Outcome, Result
from slurm_reclaim.model.session import Progress
from slurm_reclaim.ports import Clock, Link, NodeStore, Staging, Tree
from slurm_reclaim.stages.node_record import Save, save_if_possible

log = logging.getLogger(__name__)

_ATTEMPTS = 3  # to kill a tree


def hibernate(
    order: Order,
    session: NodeSession,
    tree: Tree,
    link: Link,
    store: NodeStore,
    clock: Clock,
    save: Save,
) -> Result:
    """Carry out a hibernate order. `save` makes the session's record durable (S7)."""
    began = clock.now()

    def result(outcome: Outcome, reason: str, blockers: tuple[Blocker, ...] = ()) -> Result:
        return Result(
            order=order.id,
            session=order.session,
            restarts=order.restarts,
            verb=order.verb,
            outcome=outcome,
            reason=reason,
            blockers=blockers,
            bytes=session.checkpoint_bytes if outcome is Outcome.DONE else 0,
            stored=session.checkpoint_stored if outcome is Outcome.DONE else 0,
            seconds=clock.now() - began,
            at=clock.now(),
            needs=session.needs if outcome is Outcome.DONE else None,
            freed_gpu=session.gpu_freed if outcome is Outcome.DONE else 0,
        )

    id = parse_session_id(order.session)
    try:
        _check(order, session)
        if session.living is Living.RUNNING:
            why = _save_tree(order, id, session, tree, link, store, clock, save)
            return result(Outcome.DONE, why or order.reason)
        return result(Outcome.DONE, order.reason)
    except NotReclaimable as refusal:
        return result(Outcome.REFUSED, refusal.message, session.blockers)
    except StaleOrder as refusal:
        return result(Outcome.REFUSED, refusal.message)
    except CancelledByActivity as seen:
        return result(Outcome.CANCELLED, seen.message)
    except ReclaimError as error:
        return result(Outcome.FAILED, error.message)


def _check(order: Order, session: NodeSession) -> None:
    if session.restarts != order.restarts:
        raise StaleOrder(
            f"the order is for restart {order.restarts}, the job is in restart {session.restarts}"
        )
    if session.living is Living.COMMITTED and session.checkpoint == order.restarts:
        return
    if session.living is not Living.RUNNING:
        raise StaleOrder(f"the session is {session.living.value} on its node")


def _save_tree(
    order: Order,
    id: SessionId,
    session: NodeSession,
    tree: Tree,
    link: Link,
    store: NodeStore,
    clock: Clock,
    save: Save,
) -> str:
    """Why it was saved, where that is not what was ordered; else ""."""
    total = tree.memory()
    store.reserve(total)

    def note(arrived: int) -> None:
        step = session.progress.step
        session.progress = Progress(step, min(arrived, total), total, clock.now())

    # First: whatever dies meanwhile, a later agent removes what is there of a job that has ended.
    session.session, session.staged = order.session, str(store.staging(id, order.restarts))
    save(session)
    # The program at the store starts while the session is looked at.
    staged = store.stage(id, order.restarts, tree.owner(), note)
    saving = _Saving(order, id, session, tree, store, staged)
    why = ""
    try:
        _see_that_it_can_be(order, session, tree, clock)
        session.progress = Progress("dump", 0, total, clock.now())
        session.living, session.reason, session.order = Living.DUMPING, order.reason, order.id
        save(session)
        session.held = True  # first: that it was not answered does not say that it was not heard
        link.hold()
        tree.dump(staged)
        saving.dumped = True
        _still_wanted(order, session, tree, clock)
        session.progress = Progress("commit", total, total, clock.now())
        saving.commit(lambda: _still_wanted(order, session, tree, clock))
    except BaseException as error:
        if session.living is not Living.DUMPING:
            raise  # nothing of it was touched
        why = _undo(saving, error, link, clock)
    finally:
        if not saving.committed:
            # Saved first: without what is staged, an agent that is killed here would take an
            # older checkpoint of the same number for the commit. The rest also where the job
            # has ended meanwhile: what is staged is a user's memory.
            save_if_possible(session, save)
            staged.close()
            store.discard(staged.folder)
    staged.close()
    finish(session, tree, clock, save)
    return why


def _see_that_it_can_be(order: Order, session: NodeSession, tree: Tree, clock: Clock) -> None:
    """Raises NotReclaimable, CancelledByActivity."""
    session.blockers = tuple(tree.blockers())
    if session.blockers:
        raise NotReclaimable("; ".join(map(str, session.blockers[:3])))
    _see_the_clock(order, clock)
    if order.cancel_on_activity and (seen := tree.used(order.since, order.optional)):
        raise CancelledByActivity(f"{seen[0]}, right before the session was to be frozen")


@dataclass(slots=True)
class _Saving:
    """How far a checkpoint has come. `dumped`: all of the tree is in the store and it is frozen;
    `surrounded`: what lies around it, too."""

    order: Order
    id: SessionId
    session: NodeSession
    tree: Tree
    store: NodeStore
    staged: Staging
    dumped: bool = False
    surrounded: bool = False
    committed: bool = False

    def commit(self, last_look: Callable[[], None]) -> None:
        """`last_look` may still raise."""
        if not self.surrounded:
            self.tree.save_surroundings(self.staged)
            self.surrounded = True

        def describe(contents: Contents) -> Manifest:
            # The last thing before the manifest that makes it a checkpoint: hashing took its time.
            last_look()
            manifest = self.tree.describe(self.staged, contents, self.order.reason)
            return replace(manifest, order=self.order.id)

        manifest = self.store.commit(self.staged, self.id, self.order.restarts, describe)
        self.committed = True
        _note_checkpoint(self.session, manifest)


def _undo(saving: _Saving, error: BaseException, link: Link, clock: Clock) -> str:
    """Give the tree back and raise `error` again. Where its GPU state can't be given back and the
    dump is complete: commit that; then why."""
    if saving.committed:
        raise error
    try:
        give_back(saving.session, saving.tree, link, clock)
    except GpuNotGivenBack as lost:
        try:
            if saving.dumped:
                saving.commit(lambda: None)
                return f"saved although {error}: {lost.message}"
        except ReclaimError as second:
            lost = GpuNotGivenBack(f"{lost.message}; nor could it be saved: {second.message}")
        _let_run(saving.session, saving.tree, link, clock)
        raise GpuNotGivenBack(f"{error}; {lost.message}") from error
    raise error


def _note_checkpoint(session: NodeSession, manifest: Manifest) -> None:
    session.checkpoint, session.needs = manifest.restarts, manifest.needs
    session.checkpoint_bytes = manifest.contents.raw
    session.checkpoint_stored = manifest.contents.stored


def give_back(session: NodeSession, tree: Tree, link: Link, clock: Clock) -> None:
    """Before the commit the tree is the session: it runs on as it was (S2). GpuNotGivenBack: it
    does not run yet."""
    try:
        tree.resume()
    except GpuNotGivenBack:
        raise
    except Exception as error:
        # Whatever it is that nobody has thought of, a frozen tree is worse.
        log.exception("job=%s could not be given back as it was", session.job_id)
        if session.gpu_taken:
            raise GpuNotGivenBack(f"its GPU state could not be given back: {error}") from error
        tree.let_run()
    _runs_on(session, link, clock)


def _let_run(session: NodeSession, tree: Tree, link: Link, clock: Clock) -> None:
    """Without what it had on its GPUs: what its owner has in the memory is still worth saving."""
    tree.let_run()
    _runs_on(session, link, clock)


def _runs_on(session: NodeSession, link: Link, clock: Clock) -> None:
    session.living = Living.RUNNING
    session.progress = Progress(at=clock.now())
    lift_hold(session, link)


def lift_hold(session: NodeSession, link: Link) -> None:
    """Of a session that runs: its end is to end the job again. Where that can't be said now it is
    said when its reclaim-init attaches anew (node_starts.py)."""
    if not session.held:
        return
    try:
        link.unhold()
        session.held = False
    except ReclaimError as error:
        log.warning("job=%s runs on and is still held: %s", session.job_id, error.message)


def finish(session: NodeSession, tree: Tree, clock: Clock, save: Save) -> None:
    """After the commit the image is the session: the tree must never run again (S3). Whatever goes
    wrong here, to say that the hibernation failed would be to say that the tree is the session."""
    for _ in range(_ATTEMPTS):
        try:
            tree.kill()
        except OperationFailed as error:
            # What does not die at once has SIGKILL pending and never runs code of its own again.
            log.warning("job=%s is saved; %s", session.job_id, error.message)
        except Exception:
            log.exception("job=%s is saved, and could not be killed", session.job_id)
            continue
        break
    session.living = Living.COMMITTED
    session.progress = Progress(at=clock.now())
    save_if_possible(session, save)


def _still_wanted(order: Order, session: NodeSession, tree: Tree, clock: Clock) -> None:
    """S5: the owner wins until the commit. The tree is frozen, so nothing can be missed here that
    came before; what comes later waits in a socket until the next life of the session."""
    if session.cancelled:
        raise CancelledByActivity(session.cancelled)
    _see_the_clock(order, clock)
    if order.cancel_on_activity and (seen := tree.activity(order.since)):
        raise CancelledByActivity(f"{seen[0]} while the session was being saved")


def _see_the_clock(order: Order, clock: Clock) -> None:
    """S4: `order.since` is a moment that this node has told of. Where it is still to come, what was
    done since bears times from before it."""
    if order.cancel_on_activity and clock.now() < order.since:
        raise CancelledByActivity(
            "unknown: the node's clock was put back, so when it was last used can't be told"
        )


def recover(
    session: NodeSession, tree: Tree, link: Link, store: NodeStore, clock: Clock, save: Save
) -> str:
    """An agent that died while dumping looks at the world: is the checkpoint committed or not?
    Returns the sentence for the event log."""
    id = parse_session_id(session.session)
    done = store.committed_here(id, session.restarts)
    manifest = store.read(id, session.restarts) if done else None
    # There may be an older one of the same number, from which it was restored in place.
    if manifest is not None and manifest.order == session.order:
        _note_checkpoint(session, manifest)
        finish(session, tree, clock, save)
        return "the agent was restarted after the commit; the hibernation goes on"
    try:
        give_back(session, tree, link, clock)
    except GpuNotGivenBack as error:
        session.reason = error.message
        _let_run(session, tree, link, clock)
        return f"the agent was restarted before the commit; {error.message}"
    except DumpFailed as error:
        session.reason = error.message
    finally:
        save_if_possible(session, save)
        if session.staged:  # as it is not with one from before an upgrade
            store.discard(Path(session.staged))
    return "the agent was restarted before the commit; the session runs on"
