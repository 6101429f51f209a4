"""explain: the decision about a session with everything that it rests on."""

from __future__ import annotations

from slurm_reclaim.model.evidence import Evidence
from slurm_reclaim.model.explanation import Explanation, Vote
from slurm_reclaim.model.lifecycle import RUNNING_STATES, State
from slurm_reclaim.model.sample import Signal
from slurm_reclaim.model.session import Session
from slurm_reclaim.model.words import clock
from slurm_reclaim.policy.decision import Decision, Standing
from slurm_reclaim.policy.guards import Guard
from slurm_reclaim.policy.idleness import AVERAGED, Yardstick
from slurm_reclaim.policy.terms import Terms
from slurm_reclaim.stages.desk import Desk
from slurm_reclaim.stages.judge import guard_of, judge, seen_in_the_way


def explanation(desk: Desk, session: Session) -> Explanation:
    decision, terms = judge(desk, session)
    evidence = desk.evidence.get(session.id)
    guard = guard_of(desk, session, terms)
    if guard is None and session.state is State.ACTIVE and terms.action == "hibernate":
        guard = seen_in_the_way(session)
    found = desk.view.report_of(session)
    return Explanation(
        job=session.job,
        state=session.state.value,
        mode=terms.mode,
        standing=decision.standing.value,
        reason=decision.reason,
        idle=decision.idle,
        due=decision.due,
        measured=evidence.until if evidence is not None else 0.0,
        window=terms.window,
        grace=terms.grace,
        rule=terms.rule,
        desk=terms.desk,
        why=terms.why,
        action=terms.action,
        guard=f"{guard.name}: {guard.reason}" if guard is not None else "",
        deadline=session.warned.deadline if session.warned is not None else 0.0,
        kept_until=session.kept_until if session.kept_until > desk.clock.now() else 0.0,
        follows=_follows(session, decision, terms, guard),
        votes=tuple(_votes(evidence, terms.yardstick)) if evidence is not None else (),
        gpus=found[2].gpus if found is not None else (),
    )


def _votes(evidence: Evidence, by: Yardstick) -> list[Vote]:
    order = [signal.value for signal in Signal]
    names = {*evidence.readings, *by.required}
    return [_vote(evidence, by, name) for name in order if name in names]


def _vote(evidence: Evidence, by: Yardstick, name: str) -> Vote:
    reading = evidence.readings.get(name)
    floor = by.floors.get(name, 1.0)
    averaged = name in AVERAGED
    value = reading.value if reading is not None else None
    if value is None:
        vote = "unknown-but-optional" if name in by.optional else "unknown"
    else:
        value = evidence.averages.get(name, value) if averaged else value
        vote = "use" if 0 < value >= floor else "quiet"
    what = reading.what if reading is not None else "not measured"
    return Vote(name, value, floor, averaged, evidence.used.get(name, 0.0), vote, what)


def _follows(session: Session, decision: Decision, terms: Terms, guard: Guard | None) -> str:
    if session.state not in RUNNING_STATES:
        return f"nothing is measured: the session is {session.state}"
    if session.state is State.WARNED and session.warned is not None:
        return f"hibernated {clock(session.warned.deadline)} unless it is used or kept"
    if terms.mode == "off":
        return "nothing: mode off"
    if decision.standing is Standing.UNKNOWN:
        return "nothing while something is unknown; the clock stands still"
    verb = "warned" if terms.action == "hibernate" else "told, and nothing else"
    if terms.mode == "shadow":
        verb = "logged as one that would be hibernated (mode shadow)"
    if guard is not None:
        now_or_later = (
            "nothing yet"
            if decision.standing is Standing.IDLE
            else f"{verb} {clock(max(decision.due, guard.until))} at the earliest"
        )
        return f"{now_or_later}; {guard.name}: {guard.reason}"
    return f"{verb} {clock(decision.due)} if it stays quiet"
