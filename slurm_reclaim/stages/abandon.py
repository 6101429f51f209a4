"""abandon: the only copy of a checkpoint is on a node that is lost for good. An operator's word,
and nobody else's, takes its session back to the newest checkpoint that the store has."""

from __future__ import annotations

from slurm_reclaim.errors import BadRequest, NotManaged, NotPermitted, Refused, WrongState
from slurm_reclaim.model.caller import Caller
from slurm_reclaim.model.catalogue import CheckpointRef, parse_checkpoint_ref
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.session import Session
from slurm_reclaim.model.upload import Upload, UploadState
from slurm_reclaim.stages import shelf
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.hibernate import wrong_state
from slurm_reclaim.stages.requests import is_operator
from slurm_reclaim.stages.uploads import only_node

_ASLEEP = frozenset({State.HIBERNATED, State.QUEUED})


async def abandon(desk: Desk, caller: Caller, text: str, *, start_over: bool) -> Session:
    """The session as it is then. `start_over`: also where the store has no checkpoint of it, so
    that its job starts from the top. Raises Refused with what is in the way, Unavailable where it
    is not known what the store has; nothing has changed then."""
    if not await is_operator(desk, caller):
        raise NotPermitted("only root and Slurm operators may give up a checkpoint")
    ref = parse_checkpoint_ref(text)
    if ref.restarts < 0:
        raise BadRequest(
            "say which checkpoint is given up: JOB/N",
            hint="as shown by: reclaim checkpoints list",
        )
    await shelf.refresh(desk)
    id = _session(desk, ref).id
    async with desk.lock(id):
        session = desk.sessions.get(id)
        if session is None:
            raise NotManaged(f"{id} has ended")
        node = _refuse(desk, session, ref)
        there = desk.shelf.sessions.get(str(id))
        good = () if there is None else (c for c in there.there if not c.problem)
        newest = max((c.restarts for c in good if c.restarts <= ref.restarts), default=-1)
        if newest < 0 and not start_over:
            raise Refused(
                f"the store has no checkpoint of job {session.job}: all of its work is on {node}",
                hint="to give that up: reclaim checkpoints abandon --start-over",
            )
        after = desk.update(id, checkpoint=newest, uploaded=newest, bad_nodes=(), accepted=())
        back = f"it goes back to checkpoint {newest}" if newest >= 0 else "it starts over"
        desk.note(
            id,
            "checkpoint-abandoned",
            f"{caller} gives up checkpoint {ref.restarts}, which is on {node} only: {back}",
            {"node": node, "restarts": str(ref.restarts)},
        )
        return after


def _session(desk: Desk, ref: CheckpointRef) -> Session:
    found = [s for s in desk.of_job(ref.job_id) if ref.session in ("", str(s.id))]
    if not found:
        raise NotManaged(f"there is no living session of {ref.session or f'job {ref.job_id}'}")
    return max(found, key=lambda session: session.id.submitted)


def _refuse(desk: Desk, session: Session, ref: CheckpointRef) -> str:
    """The node that has the only copy, which is not heard of, or does not have it any more."""
    if session.state not in _ASLEEP:
        raise wrong_state(session, "taken back to an older checkpoint")
    if session.checkpoint != ref.restarts:
        raise WrongState(f"job {session.job} is restored from checkpoint {session.checkpoint}")
    node = only_node(desk, session)
    if not node:
        raise Refused(f"checkpoint {ref.restarts} of job {session.job} is in the store")
    heard = desk.view.fresh(node, desk.clock.now(), desk.settings.silent_after)
    if heard is None:
        return node
    uploads = heard.report.uploads
    if uploads is None or Upload(str(session.id), ref.restarts, UploadState.PENDING) in uploads:
        raise Refused(
            f"the agent on {node} answers, and its checkpoint waits there for the upload",
            hint=f"what it waits for is in the agent's log on {node}",
        )
    return node
