"""restore, on the node: open -> fits, outputs -> prepare -> restore -> alive -> to reclaim-init.

Whatever leaves the store is compared with the sealed manifest before anybody sees it.

A failure leaves nothing behind and the image untouched: the job is held again and may try another
node.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress

from slurm_reclaim.errors import OperationFailed, ReclaimError
from slurm_reclaim.model.ids import SessionId
from slurm_reclaim.model.node_session import NodeSession
from slurm_reclaim.model.order import Living
from slurm_reclaim.model.session import Progress
from slurm_reclaim.ports import Clock, Link, NodeStore, Tree
from slurm_reclaim.stages.node_record import Save, save_if_possible

MOST_CHANGED = 100  # sentences that are kept


def restore(
    id: SessionId,
    restarts: int,
    session: NodeSession,
    tree: Tree,
    link: Link,
    store: NodeStore,
    clock: Clock,
    save: Save,
) -> bool:
    """Restore the checkpoint that was committed in incarnation `restarts`. The outcome is in
    `session.living` and `session.reason`."""
    session.session, session.living = str(id), Living.RESTORING
    session.progress = Progress("open", 0, 0, clock.now())
    try:
        save(session)
        with closing(store.open(id, restarts)) as opened, ExitStack() as stack:
            manifest = opened.manifest
            session.checkpoint, session.checkpoint_bytes = restarts, manifest.size
            session.progress = Progress("restore", 0, manifest.size, clock.now())
            with ThreadPoolExecutor(1) as beside:
                # Whatever becomes of the restore: Slurm has truncated them already.
                outputs = beside.submit(tree.put_back_outputs, opened)
                stack.enter_context(tree.coming_back(opened))
                # While that, and what the store needs for `opened`, is got ready.
                session.changed = tuple(tree.fits(manifest))[:MOST_CHANGED]
            outputs.result()
            opened.ready()
            tree.restore(opened)
        _hand_over(manifest.root_pid, tree, link)
    except ReclaimError as error:
        session.living, session.reason = Living.RESTORE_FAILED, error.message
        session.progress = Progress(at=clock.now())
        save_if_possible(session, save)
        return False
    session.root, session.child, session.held = manifest.root_pid, 0, False
    session.living, session.restored, session.reason = Living.RUNNING, True, ""
    session.progress = Progress(at=clock.now())
    save_if_possible(session, save)
    return True


def _hand_over(root: int, tree: Tree, link: Link) -> None:
    """A tree that reclaim-init does not take leaves nothing behind either: the job is held again,
    and what it did until then would be in no image."""
    try:
        link.adopt_root(root)
    except BaseException:
        with suppress(OperationFailed):
            tree.kill()
        raise
