"""What goes before its time so that the quotas of [retention] are met, and what is refused where
that is not enough. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from slurm_reclaim.config.schema import Retention
from slurm_reclaim.model.catalogue import StoredSession
from slurm_reclaim.model.retention import Known, Standing, Verdict
from slurm_reclaim.model.words import amount

Verdicts = Mapping[tuple[str, int], Verdict]
PINNED = "it is pinned"


def used(stored: Sequence[StoredSession], known: Mapping[str, Known]) -> dict[int, int]:
    """Bytes by uid of the owner."""
    found: dict[int, int] = {}
    for session in stored:
        uid = known[session.session].uid
        found[uid] = found.get(uid, 0) + session.bytes
    return found


def early(
    stored: Sequence[StoredSession],
    known: Mapping[str, Known],
    verdicts: Verdicts,
    rules: Retention,
    used: Mapping[int, int],
    now: float,
) -> Iterator[Verdict]:
    """What ended longest ago goes first, then what a newer checkpoint took the place of."""
    left, total = dict(used), sum(used.values())
    going: dict[str, set[int]] = {}
    for session in stored:
        numbers = {each.restarts for each in session.checkpoints}
        gone = {n for n in numbers if verdicts[session.session, n].expire}
        going[session.session] = gone
        left[known[session.session].uid] -= freed(session, gone)
        total -= freed(session, gone)
    for session, restarts in _candidates(stored, known, verdicts, rules, now):
        one, gone = known[session.session], going[session.session]
        why = _over(rules, left[one.uid], total, one.user)
        if not why:
            continue
        more = freed(session, gone | {restarts}) - freed(session, gone)
        gone.add(restarts)
        left[one.uid] -= more
        total -= more
        yield replace(verdicts[session.session, restarts], expire=True, reason=why)


def _candidates(
    stored: Sequence[StoredSession],
    known: Mapping[str, Known],
    verdicts: Verdicts,
    rules: Retention,
    now: float,
) -> list[tuple[StoredSession, int]]:
    found: list[tuple[tuple[int, float, int], StoredSession]] = []
    for session in stored:
        one = known[session.session]
        for checkpoint in session.checkpoints:
            restarts = checkpoint.restarts
            verdict = verdicts[session.session, restarts]
            if verdict.expire or verdict.reason == PINNED or checkpoint.only:
                continue
            superseded = restarts not in session.needed and restarts != one.checkpoint
            if one.standing is Standing.ENDED and now - one.since >= rules.least:
                found.append(((0, one.since, restarts), session))
            elif one.standing in (Standing.ALIVE, Standing.HELD) and superseded:
                found.append(((1, checkpoint.created, restarts), session))
    found.sort(key=lambda each: each[0])
    return [(session, key[2]) for key, session in found]


def freed(session: StoredSession, going: Collection[int]) -> int:
    """Bytes that go with these checkpoints. No pack goes where it is not known what needs it."""
    staying = [each for each in session.checkpoints if each.restarts not in going]
    own = sum(each.bytes for each in session.checkpoints if each.restarts in going)
    if any(each.problem for each in staying):
        return own
    if not staying and session.checkpoints:
        return own + sum(pack.size for pack in session.packs)
    needed = {name for each in staying for name in each.packs}
    gone = {name for each in session.checkpoints if each.restarts in going for name in each.packs}
    return own + sum(pack.size for pack in session.packs if pack.name in gone - needed)


def _over(rules: Retention, mine: int, total: int, user: str) -> str:
    if rules.user_quota and mine > rules.user_quota:
        return f"{user or 'its owner'} is over the quota of {amount(rules.user_quota)}"
    if rules.total_quota and total > rules.total_quota:
        return f"the store is over its quota of {amount(rules.total_quota)}"
    return ""


def refusal(rules: Retention, used: int, total: int, more: int, user: str) -> str:
    """Why a session that needs up to `more` bytes may not be hibernated; "" where it may. Nothing
    that is needed is ever deleted to make room."""
    asks = f"this session needs up to {amount(more)}"
    if rules.user_quota and used + more > rules.user_quota:
        mine = f"{amount(used)} of {amount(rules.user_quota)}"
        return f"quota: {user} has {mine} in the store, and {asks}"
    if rules.total_quota and total + more > rules.total_quota:
        every = f"{amount(total)} of {amount(rules.total_quota)}"
        return f"quota: the store has {every} in use, and {asks}"
    return ""
