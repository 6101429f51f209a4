"""hibernate, on the node: preflight -> hold -> dump -> re-read activity -> commit -> kill.

Until the commit every failure gives the tree back as it was (S2, S5); after it the image is the
session, the tree is killed and the relay keeps the allocation until Slurm requeues the job.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from slurm_reclaim.errors import (
    CancelledByActivity,
    DumpFailed,
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
from slurm_reclaim.ports import Clock, Link, NodeStore, Tree
from slurm_reclaim.stages.node_record import Save, save_if_possible


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
        )

    id = parse_session_id(order.session)
    try:
        _check(order, session)
        if session.living is Living.RUNNING:
            _save_tree(order, id, session, tree, link, store, clock, save)
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
) -> None:
    session.blockers = tuple(tree.blockers())
    if session.blockers:
        raise NotReclaimable("; ".join(map(str, session.blockers[:3])))
    if order.cancel_on_activity and (seen := tree.used(order.since, order.optional)):
        raise CancelledByActivity(f"{seen[0]}, right before the session was to be frozen")
    total = tree.memory()
    store.reserve(total)

    def note(arrived: int) -> None:
        step = session.progress.step
        session.progress = Progress(step, min(arrived, total), total, clock.now())

    session.progress = Progress("dump", 0, total, clock.now())
    staged = store.stage(id, order.restarts, tree.owner(), note)
    session.living, session.session, session.reason = Living.DUMPING, order.session, order.reason
    session.staged, session.order = str(staged.folder), order.id
    committed = False

    def describe(contents: Contents) -> Manifest:
        # The last thing before the manifest that makes it a checkpoint: hashing took its time.
        _still_wanted(order, session, tree)
        return replace(tree.describe(staged, contents, order.reason), order=order.id)

    try:
        save(session)
        link.hold()
        session.held = True
        tree.dump(staged)
        _still_wanted(order, session, tree)
        session.progress = Progress("commit", total, total, clock.now())
        tree.save_surroundings(staged)
        manifest = store.commit(staged, id, order.restarts, describe)
        committed = True
        _note_checkpoint(session, manifest)
    finally:
        if not committed:
            try:
                give_back(session, tree, link, clock)
            finally:
                # Saved first: without what is staged, an agent that is killed here would take an
                # older checkpoint of the same number for the commit. The rest also where the job
                # has ended meanwhile: what is staged is a user's memory.
                save_if_possible(session, save)
                staged.close()
                store.discard(staged.folder)
    staged.close()
    finish(session, tree, clock, save)


def _note_checkpoint(session: NodeSession, manifest: Manifest) -> None:
    session.checkpoint, session.needs = manifest.restarts, manifest.needs
    session.checkpoint_bytes = manifest.contents.raw
    session.checkpoint_stored = manifest.contents.stored


def give_back(session: NodeSession, tree: Tree, link: Link, clock: Clock) -> None:
    """Before the commit the tree is the session: it runs on as it was (S2)."""
    tree.resume()
    if session.held:
        link.unhold()
        session.held = False
    session.living = Living.RUNNING
    session.progress = Progress(at=clock.now())


def finish(session: NodeSession, tree: Tree, clock: Clock, save: Save) -> None:
    """After the commit the image is the session: the tree must never run again (S3)."""
    # What does not die at once has SIGKILL pending and never runs code of its own again.
    with suppress(OperationFailed):
        tree.kill()
    session.living = Living.COMMITTED
    session.progress = Progress(at=clock.now())
    save_if_possible(session, save)


def _still_wanted(order: Order, session: NodeSession, tree: Tree) -> None:
    """S5: the owner wins until the commit. The tree is frozen, so nothing can be missed here that
    came before; what comes later waits in a socket until the next life of the session."""
    if session.cancelled:
        raise CancelledByActivity(session.cancelled)
    if order.cancel_on_activity and (seen := tree.activity(order.since)):
        raise CancelledByActivity(f"{seen[0]} while the session was being saved")


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
    except DumpFailed as error:
        session.reason = error.message
    finally:
        save_if_possible(session, save)
        store.discard(Path(session.staged))
    return "the agent was restarted before the commit; the session runs on"
