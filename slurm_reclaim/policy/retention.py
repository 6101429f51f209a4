"""What of the store may go, in which order, who is told before, and why the rest is kept (S6).

Pure. A checkpoint goes only where it is known that nobody can need it: its session has positively
ended, or a newer one of the same session took its place. The newest checkpoint of a session that
lives never goes, whatever quotas say; what is unknown is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from slurm_reclaim.config.schema import Retention
from slurm_reclaim.model.catalogue import Announced, StoredSession
from slurm_reclaim.model.retention import (
    EXPIRED,
    Expiry,
    Known,
    Notify,
    Plan,
    Standing,
    Verdict,
)
from slurm_reclaim.model.words import clock, span
from slurm_reclaim.policy import quota


def plan(
    stored: Sequence[StoredSession],
    known: Mapping[str, Known],
    pinned: Collection[tuple[str, int]],
    rules: Retention,
    now: float,
) -> Plan:
    """`known` has an entry for every session of `stored`; `pinned` are (session, restart count)."""
    verdicts: dict[tuple[str, int], Verdict] = {}
    for session in stored:
        for verdict in _by_itself(session, known[session.session], pinned, rules, now):
            verdicts[verdict.session, verdict.restarts] = verdict
    used = quota.used(stored, known)
    for early in quota.early(stored, known, verdicts, rules, used, now):
        verdicts[early.session, early.restarts] = early
    held = [s for s in stored if known[s.session].standing is Standing.HELD and s.checkpoints]
    return Plan(
        verdicts=verdicts,
        expiries=tuple(_expiries(stored, known, verdicts, rules, now)),
        notify=tuple(_notify(held, known, pinned, rules, now)),
        retire=tuple(_retire(held, known, pinned, rules, now)),
        used=used,
        total=sum(used.values()),
    )


def is_pinned(session: StoredSession, pinned: Collection[tuple[str, int]]) -> bool:
    return any((session.session, each.restarts) in pinned for each in session.checkpoints)


# -- one session by itself -----------------------------------------------------------------------

_KEPT = {
    Standing.BUSY: "its session is being saved or restored",
    Standing.FAILED: "its session could not be restored and waits for an admin",
    Standing.ORPHAN: "the journal does not know its session; only an admin can expire it",
}


def _by_itself(
    session: StoredSession,
    known: Known,
    pinned: Collection[tuple[str, int]],
    rules: Retention,
    now: float,
) -> Iterator[Verdict]:
    ranked = sorted(session.checkpoints, key=lambda each: each.restarts, reverse=True)
    for rank, each in enumerate(ranked):
        restarts = each.restarts
        keep = Verdict(session.session, restarts, False, "")
        if (session.session, restarts) in pinned:
            yield replace(keep, reason=quota.PINNED)
        elif each.only:
            # What is not in the store can't be deleted there, nor be missing.
            yield replace(keep, reason=f"it is on {each.only} only until it is uploaded")
        elif known.standing in _KEPT:
            yield replace(keep, reason=_KEPT[known.standing])
        elif known.standing is Standing.UNKNOWN:
            yield replace(keep, reason=known.why or "nothing is known of its session")
        elif known.standing is Standing.ENDED:
            yield _of_ended(keep, known, rules, now)
        elif restarts in session.needed or restarts == known.checkpoint:
            yield replace(keep, reason=_newest(known, rules, now), due=_deadline(known, rules, now))
        elif rank < rules.per_session:
            yield replace(keep, reason=f"one of the {rules.per_session} newest of its session")
        else:
            reason = f"checkpoint {ranked[0].restarts} took its place"
            yield replace(keep, expire=True, reason=reason)


def _of_ended(keep: Verdict, known: Known, rules: Retention, now: float) -> Verdict:
    due = known.since + rules.ended
    if now < due:
        return replace(keep, reason=f"its session ended {clock(known.since)}", due=due)
    return replace(
        keep, expire=True, due=due, reason=f"its session ended {span(now - known.since)} ago"
    )


def _newest(known: Known, rules: Retention, now: float) -> str:
    if known.standing is Standing.ALIVE:
        return "the newest of a session that runs"
    deadline = _deadline(known, rules, now)
    if not deadline:
        return "its session is hibernated: it is all there is of it"
    return f"its session is hibernated, and kept until {clock(deadline)} at least"


# -- held sessions -------------------------------------------------------------------------------


def _announced(known: Known) -> Announced | None:
    """What was said of this hibernation, and not of one before."""
    said = known.announced
    return said if said is not None and said.since == known.since else None


def _deadline(known: Known, rules: Retention, now: float) -> float:
    """When a held session ends (Unix seconds), as said or as it would be said now; 0: never."""
    if known.standing is not Standing.HELD or not rules.hibernated:
        return 0.0
    by_age = known.since + rules.hibernated
    said = _announced(known)
    if said is not None:
        # Longer than was said, where the rules have changed; never shorter.
        return max(said.deadline, by_age)
    return max(by_age, now + rules.notice)


def _notify(
    held: Sequence[StoredSession],
    known: Mapping[str, Known],
    pinned: Collection[tuple[str, int]],
    rules: Retention,
    now: float,
) -> Iterator[Notify]:
    for session in held:
        one = known[session.session]
        deadline = _deadline(one, rules, now)
        if not deadline or is_pinned(session, pinned) or now >= deadline:
            continue
        said = _announced(one)
        if said is None and deadline - now <= rules.notice:
            yield Notify(session.session, deadline, 1)
        elif said is not None and said.times == 1 and deadline - now <= rules.notice_again:
            yield Notify(session.session, deadline, 2)


def _retire(
    held: Sequence[StoredSession],
    known: Mapping[str, Known],
    pinned: Collection[tuple[str, int]],
    rules: Retention,
    now: float,
) -> Iterator[str]:
    """Only who was told, at least `notice` ago, and of this hibernation."""
    for session in held:
        one = known[session.session]
        said, deadline = _announced(one), _deadline(one, rules, now)
        if said is None or not deadline or is_pinned(session, pinned):
            continue
        if now >= deadline and now - said.at >= rules.notice:
            yield session.session


# -- the order -----------------------------------------------------------------------------------


def _expiries(
    stored: Sequence[StoredSession],
    known: Mapping[str, Known],
    verdicts: Mapping[tuple[str, int], Verdict],
    rules: Retention,
    now: float,
) -> Iterator[Expiry]:
    """Ended sessions first, those that ended longest ago before the others; of a session its
    oldest checkpoints first."""
    order = sorted(
        stored,
        key=lambda s: (known[s.session].standing is not Standing.ENDED, known[s.session].since),
    )
    for session in order:
        one = known[session.session]
        going = tuple(
            each.restarts
            for each in sorted(session.checkpoints, key=lambda c: c.restarts)
            if verdicts[session.session, each.restarts].expire
        )
        ended = one.standing is Standing.ENDED
        if going:
            reason = verdicts[session.session, going[-1]].reason
            yield Expiry(session.session, going, ended, reason)
        elif _left_behind(session, one, rules, now):
            yield Expiry(session.session, (), ended, "left behind by what was interrupted")


def _left_behind(session: StoredSession, known: Known, rules: Retention, now: float) -> bool:
    """Nothing that is needed, and nobody at work on it: what an interrupted collection left, or of
    an ended session without a checkpoint everything."""
    if known.standing is Standing.ENDED and not session.checkpoints:
        return now - known.since >= rules.least
    resumable = known.standing in (Standing.ENDED, Standing.ALIVE, Standing.HELD)
    begun = any(name.startswith(EXPIRED) for name in session.leftovers)
    return resumable and (begun or bool(session.stray))
