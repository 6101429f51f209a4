"""From evidence and terms to a decision, with the reason in words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from slurm_reclaim.model.evidence import Evidence
from slurm_reclaim.model.words import span
from slurm_reclaim.policy.terms import Terms

# Evidence that reaches further into the future than this was measured by a clock put back since.
AHEAD = 10.0  # seconds


class Standing(str, Enum):
    """`unknown`: the clock stands still; `active`: in use until just now; `quiet`: the clock runs;
    `idle`: quiet for the whole window."""

    UNKNOWN = "unknown"
    ACTIVE = "active"
    QUIET = "quiet"
    IDLE = "idle"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Decision:
    """`idle`: seconds for which the session is known to be quiet; `due`: Unix seconds at which the
    window is full if nothing happens (0: not while something is unknown)."""

    standing: Standing
    idle: float
    due: float
    reason: str


def decide(evidence: Evidence | None, terms: Terms, now: float, silent_after: float) -> Decision:
    """`silent_after`: evidence older than this many seconds is stale, which is unknown."""
    if evidence is None or not evidence.readings:
        return Decision(Standing.UNKNOWN, 0.0, 0.0, "nothing has been measured yet")
    if evidence.until - now > AHEAD:
        return Decision(Standing.UNKNOWN, evidence.quiet, 0.0, "a clock was put back meanwhile")
    if now - evidence.until > silent_after:
        age = span(now - evidence.until)
        return Decision(Standing.UNKNOWN, evidence.quiet, 0.0, f"nothing was measured for {age}")
    if evidence.blind:
        return Decision(Standing.UNKNOWN, evidence.quiet, 0.0, _blind(evidence))
    due = evidence.until + max(0.0, terms.window - evidence.quiet)
    if evidence.quiet >= terms.window:
        return Decision(Standing.IDLE, evidence.quiet, due, _idle(evidence, terms))
    if evidence.active_at >= evidence.until:
        used = f"in use: {evidence.active_by} {evidence.active_what}".strip()
        return Decision(Standing.ACTIVE, evidence.quiet, due, used)
    quiet = f"quiet for {span(evidence.quiet)} of {span(terms.window)}"
    return Decision(Standing.QUIET, evidence.quiet, due, quiet)


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why a warning is taken back; `used`: somebody was there after all."""

    used: bool
    reason: str


def doubt(
    evidence: Evidence | None, decision: Decision, since: float, due: float, gap: float, now: float
) -> Doubt | None:
    """Of a session that was found idle at `since` and is to be hibernated at `due` (Unix seconds).
    What is unknown only makes it wait, until `gap` seconds after it was due."""
    if evidence is not None and evidence.active_at > since:
        what = f"{evidence.active_by} {evidence.active_what}".strip()
        return Doubt(True, f"in use again: {what}")
    if decision.standing in (Standing.ACTIVE, Standing.QUIET):
        # The clock was set back though no use was seen: by a gap, or by longer windows.
        return Doubt(False, f"idle no more: {decision.reason}")
    if decision.standing is Standing.UNKNOWN and now > due + gap:
        return Doubt(False, decision.reason)
    return None


def _blind(evidence: Evidence) -> str:
    parts = []
    for name in evidence.blind:
        reading = evidence.readings.get(name)
        why = reading.what if reading is not None else ""
        parts.append(f"{name} is unknown" + (f" ({why})" if why else ""))
    return "; ".join(parts)


def _idle(evidence: Evidence, terms: Terms) -> str:
    last = "not used since it was first measured"
    if evidence.active_by:
        last = f"last used {span(evidence.until - evidence.active_at)} ago ({evidence.active_by})"
    return f"idle for {span(evidence.quiet)} (window {span(terms.window)}, {terms.why}); {last}"
