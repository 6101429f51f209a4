"""The JSON that programs read (docs/commands.md). Fields are added, never renamed or removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slurm_reclaim.cli import phrases
from slurm_reclaim.model.catalogue import Listed, Pin, StoredPart
from slurm_reclaim.model.event import Event
from slurm_reclaim.model.sample import GpuHeld
from slurm_reclaim.model.session import Session


def session(session: Session) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "job": session.job,
        "job_id": session.id.job_id,
        "session": str(session.id),
        "cluster": session.id.cluster,
        "uid": session.id.uid,
        "user": session.user,
        "name": session.name,
        "account": session.account,
        "partition": session.partition,
        "qos": session.qos,
        "state": str(session.state),
        "reason": session.reason,
        "since": session.since,
        "submitted": session.id.submitted,
        "node": phrases.node(session) or None,
        "last_node": session.node or None,
        "restarts": session.restarts,
        "tres": session.tres,
        "time_left": session.time_left or None,
        "checkpoint": None,
        "blockers": list(session.blockers),
        "bad_nodes": list(session.bad_nodes),
        "progress": None,
        "deadline": session.warned.deadline or None if session.warned is not None else None,
        "kept_until": session.kept_until or None,
        "vram_held": session.vram if session.gpus else None,
        "vram_freed": session.freed_gpu or None,
        "gpus": [gpu(each) for each in session.gpus],
        "unfit": None,
    }
    if session.unfit is not None:
        shown["unfit"] = {"since": session.unfit.since, "reason": session.unfit.reason}
    if session.checkpoint >= 0:
        shown["checkpoint"] = {"restarts": session.checkpoint, "bytes": session.checkpoint_bytes}
    if session.progress.step:
        shown["progress"] = {
            "step": session.progress.step,
            "done": session.progress.done,
            "total": session.progress.total,
            "at": session.progress.at,
        }
    return shown


def gpu(gpu: GpuHeld) -> dict[str, Any]:
    return {
        "uuid": gpu.uuid,
        "model": gpu.model,
        "index": gpu.index,
        "memory_total": gpu.memory_total or None,
        "memory_held": gpu.memory if gpu.memory >= 0 else None,
        "contexts": gpu.contexts if gpu.contexts >= 0 else None,
        "foreign": list(gpu.foreign),
    }


def event(event: Event) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "at": event.at,
        "kind": event.kind,
        "reason": event.reason,
        "session": event.session or None,
        "job_id": event.job_id or None,
        "uid": event.uid if event.uid >= 0 else None,
        "node": event.node or None,
        "before": event.before or None,
        "after": event.after or None,
        "details": event.details,
    }


def pin(pin: Pin) -> dict[str, Any]:
    return {
        "session": pin.session,
        "restarts": pin.restarts,
        "by": pin.by,
        "admin": pin.admin,
        "at": pin.at,
        "reason": pin.reason,
    }


def checkpoint(each: Listed, parts: Sequence[StoredPart] | None = None) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "session": each.session,
        "restarts": each.restarts,
        "job": each.job,
        "user": each.user or None,
        "uid": each.uid,
        "state": each.state,
        "created": each.created or None,
        "bytes": each.bytes,
        "alone": each.alone,
        "node": each.node or None,
        "reason": each.reason,
        "kept": each.keeps,
        "expires": each.expires or None,
        "pins": [pin(one) for one in each.pins],
        "problem": each.problem or None,
    }
    if parts is not None:
        shown["parts"] = [
            {"path": part.path, "bytes": part.size, "also": list(part.also)} for part in parts
        ]
    return shown
