"""What is known of a session's use, folded from its samples: the state of the idle clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slurm_reclaim.model.sample import Reading

# (end, seconds, values of the signals judged by their average) of one recent sample; None where
# a value was unknown.
Recent = tuple[float, float, tuple["float | None", ...]]


# Not frozen, which would cost a third of a fold; made anew for each sample and never changed.
@dataclass(slots=True)
class Evidence:
    """Times are Unix seconds, spans seconds. `since`: when this incarnation was first measured;
    `until`: the end of the last sample; `active_at` and `active_by`: the last use seen and the
    signal that showed it (0 and "": none yet), `active_what` its words. `quiet`: how long every
    signal was known and below its floor since then, `unknown`: for how long it has been unknown
    until now. `readings` of the last sample; `averages` over the last minute of the signals that
    are judged by it; `used`: the last use by each signal; `blind`: signals that the last sample
    does not know."""

    since: float
    until: float
    active_at: float = 0.0
    active_by: str = ""
    active_what: str = ""
    quiet: float = 0.0
    unknown: float = 0.0
    blind: tuple[str, ...] = ()
    readings: Mapping[str, Reading] = field(default_factory=dict)
    averages: Mapping[str, float] = field(default_factory=dict)
    used: Mapping[str, float] = field(default_factory=dict)
    recent: tuple[Recent, ...] = ()
