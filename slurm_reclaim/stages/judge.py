"""decide: samples become evidence, evidence becomes a decision, for one session at a time."""

from __future__ import annotations

from typing import Any

from slurm_reclaim.model.order import Living, Report, SessionReport
from slurm_reclaim.model.sample import Reading, Sample
from slurm_reclaim.model.session import Session
from slurm_reclaim.policy import guards, idleness, terms
from slurm_reclaim.policy.decision import AHEAD, Decision, decide
from slurm_reclaim.policy.idleness import begin, fold
from slurm_reclaim.policy.terms import Subject, Terms
from slurm_reclaim.stages.desk import Desk

# Where nothing looks at the clock, terms are worked out anew less often than terms.TERMS_HOLD.
UNTIMED_HOLD = 600.0  # seconds
# Clocks of hosts that differ by less than this are taken as the same.
SAME_CLOCK = 2.0  # seconds
# What no agent measures: a sample with any of it is none.
_MOST_SECONDS, _MOST_READINGS, _MOST_VALUE = 86_400.0, 64, 1e18


def take_samples(desk: Desk, report: Report, told: SessionReport, session: Session) -> None:
    """Fold what the session's own agent measured while it runs into its evidence."""
    if told.living is not Living.RUNNING or told.restarts != session.restarts:
        return
    if report.node != session.node:
        return
    job = desk.view.jobs.get(session.id.job_id)
    if job is not None and job.suspended:
        return  # nobody could use it: what is measured meanwhile says nothing of its owner (S4)
    now = desk.clock.now()
    ahead = clock_ahead(report.at, now)
    by = terms_of(desk, session).yardstick
    evidence = desk.evidence.get(session.id)
    if evidence is not None and evidence.until > now + AHEAD:
        # Our clock was put back: all that is measured now would pass for older than this.
        evidence = None
        del desk.evidence[session.id]
    for sample in told.samples:
        if not _plausible(sample):
            continue
        sample = _shifted(sample, ahead) if ahead else sample
        if sample.at > now + SAME_CLOCK:
            continue  # its node's clock was put back since
        if evidence is None and sample.began < session.started:
            continue  # of the life before
        evidence = fold(begin(sample.began) if evidence is None else evidence, sample, by)
    if evidence is not None:
        desk.evidence[session.id] = evidence


def kept(desk: Desk, session: Session, what: str) -> None:
    """Its owner wants it. In the journal at once, which else has evidence only now and then: a
    restart must not forget what its owner was told."""
    evidence = desk.evidence.get(session.id)
    if evidence is not None:
        after = idleness.kept(evidence, desk.clock.now(), what)
        desk.evidence[session.id] = after
        desk.journal.keep_evidence({session.id: after}, ())


def _plausible(sample: Sample) -> bool:
    if not (0 < sample.seconds <= _MOST_SECONDS and len(sample.readings) <= _MOST_READINGS):
        return False
    for reading in sample.readings.values():
        value = reading.value
        # So that NaN, which is not within any bounds, is implausible, too.
        if value is not None and not 0 <= value <= _MOST_VALUE:
            return False
    return True


def clock_ahead(reported: float, now: float) -> float:
    """Seconds by which a node's clock is ahead of ours; 0 where that may as well be the way."""
    ahead = reported - now
    return ahead if abs(ahead) > SAME_CLOCK else 0.0


def _shifted(sample: Sample, ahead: float) -> Sample:
    readings = {
        name: Reading(r.value, r.last - ahead if r.last else 0.0, r.what)
        for name, r in sample.readings.items()
    }
    return Sample(sample.at - ahead, sample.seconds, readings)


def terms_of(desk: Desk, session: Session) -> Terms:
    now = desk.clock.now()
    held = desk.terms.get(session.id)
    if (
        held is not None
        and now < held[0] <= now + UNTIMED_HOLD  # later: our clock was put back
        and held[1] is desk.settings.config
    ):
        return held[2]
    found = terms.terms(desk.settings.config, subject_of(desk, session), now)
    hold = terms.TERMS_HOLD if terms.timed(desk.settings.config) else UNTIMED_HOLD
    desk.terms[session.id] = (now + hold, desk.settings.config, found)
    return found


def subject_of(desk: Desk, session: Session) -> Subject:
    return Subject(
        cluster=session.id.cluster,
        partition=session.partition,
        qos=session.qos,
        account=session.account,
        user=session.user,
        name=session.name,
        tres=session.tres,
    )


def judge(desk: Desk, session: Session) -> tuple[Decision, Terms]:
    held = terms_of(desk, session)
    evidence = desk.evidence.get(session.id)
    now, silent_after = desk.clock.now(), desk.settings.silent_after
    return decide(evidence, held, now, silent_after), held


def guard_of(desk: Desk, session: Session, held: Terms) -> guards.Guard | None:
    situation = guards.Situation(
        started=session.started,
        min_age=desk.settings.config.idle.min_age,
        kept_until=session.kept_until,
        cooldown_until=session.cooldown_until,
        cooldown_reason=session.cooldown_reason,
        blockers=session.blockers,
        brake=desk.brake,
    )
    return guards.first(situation, held, desk.clock.now())


def seen_in_the_way(session: Session) -> guards.Guard | None:
    """What its agent found when it looked last; before a warning it looks again."""
    if not session.blockers:
        return None
    return guards.Guard("blocked", "; ".join(session.blockers[:3]))


def vram_held(desk: Desk, session: Session) -> int:
    """Bytes of GPU memory that the session holds, as far as is known."""
    found = desk.view.report_of(session)
    return sum(max(0, gpu.memory) for gpu in found[2].gpus) if found is not None else 0


def cooled(desk: Desk, why: str) -> dict[str, Any]:
    """What changes on a session that is not to be warned again for a while."""
    until = desk.clock.now() + desk.settings.config.idle.cooldown
    return {"cooldown_until": until, "cooldown_reason": why}
