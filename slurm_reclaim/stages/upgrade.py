"""Which checkpoints an upgrade of nodes would make invalid, and telling their owners before."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Mapping
from dataclasses import replace

from slurm_reclaim.errors import BadRequest, SchedulerUnavailable
from slurm_reclaim.model.checkpoint import Needs
from slurm_reclaim.model.lifecycle import State
from slurm_reclaim.model.notice import NoticeKind
from slurm_reclaim.model.order import NodeFacts
from slurm_reclaim.model.session import Session
from slurm_reclaim.model.upgrade import Affected, Forecast, Upgrade
from slurm_reclaim.model.words import clock
from slurm_reclaim.stages import tell
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.fit import mismatch, mounts_of
from slurm_reclaim.stages.kinds import kinds
from slurm_reclaim.stages.uploads import only_node

_ASLEEP = frozenset({State.REQUEUING, State.HIBERNATED, State.QUEUED, State.FAILED})
# Mail servers take so many at once.
AT_ONCE = 8
_ANOTHER_BUILD = "another build"

# Of a node: why it does not fit now and why it would not then, "" where it does; of none where
# nothing changes.
Verdicts = Mapping[str, tuple[str, str]]


async def forecast(desk: Desk, upgrade: Upgrade) -> Forecast:
    """Raises BadRequest. What may be mended by itself (a store that is not mounted, an agent that
    is silent) is left out of it: what a node last said of itself counts."""
    nodes = _nodes(desk, upgrade)
    found, looked = [], 0
    for session in list(desk.sessions.values()):
        if session.state not in _ASLEEP or session.checkpoint < 0 or session.needs is None:
            continue
        looked += 1
        verdicts = _verdicts(desk, session.needs, _partition(desk, session), nodes, upgrade)
        await asyncio.sleep(0)  # a look at every node takes a while, and others wait
        affected = _affected(desk, session, verdicts)
        if affected is not None:
            found.append((session, affected))
    if upgrade.notify:
        found = await _tell(desk, found, upgrade)
    silent = desk.view.nodes.keys() - desk.view.agents.keys()
    return Forecast(looked, desk.names.fold(silent), tuple(each for _, each in found))


def _nodes(desk: Desk, upgrade: Upgrade) -> Collection[str]:
    if not (upgrade.driver or upgrade.kernel or upgrade.criu or upgrade.glibc):
        raise BadRequest("nothing is to be upgraded: name a driver, kernel, criu or glibc")
    known = desk.view.nodes.keys() | desk.view.agents.keys()
    if not upgrade.nodes:
        return known
    try:
        named = desk.names.expand(upgrade.nodes)
    except SchedulerUnavailable:
        raise BadRequest(f"{upgrade.nodes!r} is no list of nodes, like n[1-4]") from None
    if strange := set(named) - known:
        raise BadRequest(f"Slurm has no node {', '.join(sorted(strange)[:5])}")
    return set(named)


def _partition(desk: Desk, session: Session) -> str:
    job = desk.view.jobs.get(session.id.job_id)
    return job.partition if job is not None else session.partition


def _verdicts(
    desk: Desk, needs: Needs, partition: str, nodes: Collection[str], upgrade: Upgrade
) -> Verdicts:
    now, silent_after = desk.clock.now(), desk.settings.silent_after
    known = kinds(partition, desk.view, now, silent_after)
    look = mounts_of(needs, desk.view.recall(now))
    before = known.verdicts(needs, lambda facts: mismatch(needs, facts), look)
    after = known.verdicts(needs, lambda facts: mismatch(needs, upgraded(facts, upgrade)), look)
    if before == after:
        return {}
    then = dict(known.each(*after))
    return {name: (why, then[name] if name in nodes else why) for name, why in known.each(*before)}


def upgraded(facts: NodeFacts, upgrade: Upgrade) -> NodeFacts:
    """What the node will say of itself then. A C library of the same version is another build."""
    return replace(
        facts,
        gpu_driver=upgrade.driver if upgrade.driver and facts.gpus else facts.gpu_driver,
        kernel=upgrade.kernel or facts.kernel,
        criu=upgrade.criu or facts.criu,
        glibc=upgrade.glibc or facts.glibc,
        glibc_build=_ANOTHER_BUILD if upgrade.glibc else facts.glibc_build,
    )


def _affected(desk: Desk, session: Session, verdicts: Verdicts) -> Affected | None:
    only = only_node(desk, session)
    mine = {n: v for n, v in verdicts.items() if not only or n == only}
    worse = {name: then for name, (now, then) in mine.items() if then and not now}
    if not worse:
        return None
    left = [name for name, (_, then) in mine.items() if not then]
    name, why = min(worse.items())
    return Affected(
        session=str(session.id),
        job=session.job,
        user=session.user,
        state=session.state.value,
        lost=not left,
        why=f"{name}: {why}",
        left=desk.names.fold(left),
        vram=session.freed_gpu,
    )


Found = list[tuple[Session, Affected]]


async def _tell(desk: Desk, found: Found, upgrade: Upgrade) -> Found:
    """The owners of what is lost."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(session: Session, affected: Affected) -> tuple[Session, Affected]:
        if not affected.lost or desk.notifier is None:
            return session, affected
        async with room:
            return session, await _tell_one(desk, session, affected, upgrade)

    return list(await asyncio.gather(*(one(*each) for each in found)))


async def _tell_one(desk: Desk, session: Session, affected: Affected, upgrade: Upgrade) -> Affected:
    assert desk.notifier is not None
    reason = in_words(upgrade)
    id = secrets.token_hex(8)
    notice = tell.notice_of(desk, session, NoticeKind.UPGRADE, reason, id)
    deliveries = await desk.notifier.deliver(replace(notice, deadline=upgrade.deadline))
    told = tuple(str(each.channel) for each in deliveries if each.ok)
    failed = tuple(f"{each.channel}: {each.error}" for each in deliveries if not each.ok)
    if session.id in desk.sessions:
        by = f"told by {', '.join(told)}" if told else "nobody could be told"
        due = f" by {clock(upgrade.deadline)}" if upgrade.deadline else ""
        desk.note(session.id, "upgrade-announced", f"lost{due} unless restored: {reason}; {by}")
    return replace(affected, told=told, failed=failed)


def in_words(upgrade: Upgrade) -> str:
    parts = [
        f"{what} {version}"
        for what, version in (
            ("NVIDIA driver", upgrade.driver),
            ("kernel", upgrade.kernel),
            ("CRIU", upgrade.criu),
            ("glibc", upgrade.glibc),
        )
        if version
    ]
    return f"{', '.join(parts)} on {upgrade.nodes or 'all nodes'}"
