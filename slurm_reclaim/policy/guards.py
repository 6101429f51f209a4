"""Why nothing may follow from a decision yet, each with its name. Nobody is warned of what can't or
must not be done."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_reclaim.model.words import clock
from slurm_reclaim.policy.terms import Terms


@dataclass(frozen=True, slots=True)
class Situation:
    """What guards look at: `started` of this incarnation, `kept_until` and `cooldown_until` in
    Unix seconds (0: not), `blockers` found by the last preflight, which is not done again before
    the cool-down is over, `brake` the reason why everything is stopped ("": it is not)."""

    started: float
    min_age: float
    kept_until: float = 0.0
    cooldown_until: float = 0.0
    cooldown_reason: str = ""
    blockers: tuple[str, ...] = ()
    brake: str = ""


@dataclass(frozen=True, slots=True)
class Guard:
    """`until`: Unix seconds, 0: nobody knows."""

    name: str
    reason: str
    until: float = 0.0


def first(situation: Situation, terms: Terms, now: float) -> Guard | None:
    """The first guard that stands in the way of a warning; None where none does."""
    if terms.mode == "off":
        return Guard("exempt", f"mode off{f' by rule {terms.rule}' if terms.rule else ''}")
    if situation.kept_until > now:
        until = situation.kept_until
        return Guard("kept", f"kept by its owner until {clock(until)}", until)
    old_enough = situation.started + situation.min_age
    if now < old_enough:
        return Guard("too-young", f"left alone until {clock(old_enough)}", old_enough)
    if situation.cooldown_until > now:
        until = situation.cooldown_until
        if situation.blockers:
            return Guard("blocked", "; ".join(situation.blockers[:3]), until)
        why = f": {situation.cooldown_reason}" if situation.cooldown_reason else ""
        return Guard("cool-down", f"until {clock(until)}{why}", until)
    if situation.brake:
        return Guard("brake", situation.brake)
    return None
