"""ACTIVE: is the session idle, and what follows from it in its mode."""

from __future__ import annotations

import secrets

from slurm_reclaim.model.lifecycle import Fact
from slurm_reclaim.model.notice import NoticeKind
from slurm_reclaim.model.sample import Signal
from slurm_reclaim.model.session import Session, Warned
from slurm_reclaim.model.words import amount, span
from slurm_reclaim.policy.decision import Decision, Standing
from slurm_reclaim.policy.guards import Guard
from slurm_reclaim.policy.idleness import idle_span
from slurm_reclaim.policy.terms import GPU_SIGNALS, Terms
from slurm_reclaim.stages import tell
from slurm_reclaim.stages.desk import Desk, Details
from slurm_reclaim.stages.judge import guard_of, judge, seen_in_the_way, vram_held


def step(desk: Desk, session: Session) -> None:
    decision, terms = judge(desk, session)
    _report_stuck(desk, session)
    evidence = desk.evidence.get(session.id)
    if decision.standing is not Standing.IDLE or evidence is None:
        return
    guard = guard_of(desk, session, terms)
    if guard is not None and guard.name == "exempt":
        return
    span_name = idle_span(evidence)
    if terms.mode == "shadow":
        _would(desk, session, decision, terms, guard, span_name)
    elif guard is not None:
        desk.note(session.id, "not-warned", f"{guard.name}: {guard.reason}")
    elif terms.action == "notify":
        _tell_only(desk, session, decision, span_name)
    else:
        warned = Warned(secrets.token_hex(8), since=desk.clock.now())
        desk.apply(session.id, Fact.IDLE_CONFIRMED, decision.reason, warned=warned)


def details_of(desk: Desk, session: Session, decision: Decision, terms: Terms) -> Details:
    """Numbers for programs that read events and logs."""
    return {
        "stage": "interactive_reclaim",
        "idle_seconds": round(decision.idle),
        "vram_bytes": vram_held(desk, session),
        "rule": terms.rule or "default",
    }


def _would(
    desk: Desk,
    session: Session,
    decision: Decision,
    terms: Terms,
    guard: Guard | None,
    span_name: float,
) -> None:
    """Shadow mode: said once for each span of idleness, and nothing else happens. What stands in
    the way is said once, too, and may pass while the session stays idle. Slurm is not asked: that
    is for those who are to be warned."""
    if session.shadowed >= span_name:
        return
    if guard is None and terms.action == "hibernate":
        guard = seen_in_the_way(session)
    details: Details = {
        "action": "would_hibernate_session",
        **details_of(desk, session, decision, terms),
    }
    verb = "would be told" if terms.action == "notify" else "would be hibernated"
    reason = f"{verb}: {decision.reason}; {amount(vram_held(desk, session))} of GPU memory held"
    about = f"{span_name:.3f}"
    if guard is not None:
        details |= {"action": "would_not_hibernate_session", "guard": guard.name}
        reason = f"would not be warned, {guard.name}: {guard.reason}"
        about += " guarded"
    else:
        desk.update(session.id, shadowed=span_name)
    numbers = " ".join(f"{name}={value}" for name, value in details.items())
    desk.note(session.id, "shadow", f"{reason} [{numbers}]", details, about=about)


def _tell_only(desk: Desk, session: Session, decision: Decision, span_name: float) -> None:
    """action = "notify": the owner is told once for each span of idleness."""
    if session.shadowed >= span_name:
        return
    session = desk.update(session.id, shadowed=span_name)
    desk.note(session.id, "idle-told", decision.reason)
    id = secrets.token_hex(8)
    tell.send(desk, session, tell.notice_of(desk, session, NoticeKind.IDLE, decision.reason, id))


def _report_stuck(desk: Desk, session: Session) -> None:
    """A kernel that calls itself busy and uses nothing for hours waits for something that may never
    come. It counts as use; its owner and the admins should know."""
    evidence = desk.evidence.get(session.id)
    if evidence is None:
        return
    busy = evidence.readings.get(Signal.JUPYTER.value)
    if busy is None or not busy.value:
        return
    worked = [Signal.CPU.value, *(signal.value for signal in GPU_SIGNALS)]
    last = max((evidence.used.get(name, evidence.since) for name in worked), default=evidence.since)
    without = evidence.until - last
    limit = desk.settings.config.idle.busy_report
    if without > limit:
        desk.note(
            session.id,
            "busy-without-work",
            f"{busy.what}, but neither CPU nor GPU was used for more than {span(limit)}",
            about=f"since {last:.0f}",
        )
