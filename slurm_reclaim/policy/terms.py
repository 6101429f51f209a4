"""The terms a session is judged by: which rule and which desk it falls under, and what they say.

A rule's word goes before the desk's, the desk's before [idle]'s; no rule is stronger than the
cluster's mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from slurm_reclaim.config.schema import Config, Desk, Rule
from slurm_reclaim.model.sample import Signal
from slurm_reclaim.model.week import (
    last_time,
    local,
    parse_day,
    parse_hours,
    parse_time,
    parse_zone,
)
from slurm_reclaim.policy.cost import weighted
from slurm_reclaim.policy.idleness import Yardstick

MODES = ("off", "shadow", "prod")
# Terms that depend on the hour are worked out anew this often.
TERMS_HOLD = 30.0  # seconds
# A sweep's time holds for this long, so that what is busy at the hour is caught when it is done.
SWEEP_LASTS = 1800.0  # seconds

GPU_SIGNALS = (Signal.GPU, Signal.GPU_MEMORY, Signal.GPU_CODEC, Signal.GPU_PCIE)
_ALWAYS = frozenset(
    {Signal.CPU.value, Signal.IO.value, Signal.NETWORK.value, Signal.TERMINAL.value}
)
_WITH_GPU = _ALWAYS | {signal.value for signal in GPU_SIGNALS}
_GPU_GRES = ("gres/gpu", "gres/shard", "gres/mps")


@dataclass(frozen=True, slots=True)
class Subject:
    """The session as rules see it; `tres` as Slurm writes it (cpu=2,gres/gpu:a100=1,billing=3)."""

    cluster: str
    partition: str
    qos: str
    account: str
    user: str
    name: str
    tres: str = ""


@dataclass(frozen=True, slots=True)
class Terms:
    """`mode` is the cluster's or a weaker one; `window` and `grace` seconds; `why` says for people
    where they come from."""

    mode: str
    action: str
    window: float
    grace: float
    yardstick: Yardstick
    rule: str = ""
    desk: str = ""
    why: str = ""


def terms(config: Config, subject: Subject, now: float) -> Terms:
    """What holds for `subject` at `now` (Unix seconds)."""
    number, rule = _first_rule(config.rule, subject, now)
    desk = _first_desk(config.desk, subject)
    window, grace, why = _spans(config, desk, now)
    if rule.window is not None:
        window, why = rule.window, "its rule's window"
    if rule.grace is not None:
        grace = rule.grace
    return Terms(
        mode=weaker(config.mode, rule.mode),
        action=rule.action,
        window=window,
        grace=weighted(grace, config.cost, subject.tres),
        yardstick=yardstick(config, rule, subject),
        rule=(rule.name or f"[[rule]] {number}") if number else "",
        desk=desk.name if desk is not None else "",
        why=why,
    )


def timed(config: Config) -> bool:
    """Whether terms depend on the hour."""
    return bool(config.desk) or any(rule.hours for rule in config.rule)


def weaker(mode: str, other: str) -> str:
    """The weaker of two modes; "" says nothing."""
    return min(mode, other or mode, key=MODES.index)


def yardstick(config: Config, rule: Rule, subject: Subject) -> Yardstick:
    idle = config.idle
    floors = {}
    for signal in (*GPU_SIGNALS, Signal.CPU, Signal.IO, Signal.NETWORK):
        name = signal.value.replace("-", "_") + "_floor"
        own = getattr(rule, name)
        floors[signal.value] = float(getattr(idle, name) if own is None else own)
    return Yardstick(
        floors=floors,
        required=_WITH_GPU if has_gpu(subject.tres) else _ALWAYS,
        optional=frozenset((*idle.optional, *rule.optional)),
        gap=idle.gap,
    )


def has_gpu(tres: str) -> bool:
    return any(name.startswith(_GPU_GRES) for name, count in _tres(tres) if count not in ("", "0"))


def gpu_count(tres: str) -> int:
    """Whole GPUs of a job; the count without a type holds where there is one."""
    counts = {name: int(count) for name, count in _tres(tres) if count.isdecimal()}
    typed = sum(count for name, count in counts.items() if name.startswith("gres/gpu:"))
    return counts.get("gres/gpu", typed)


def gres_names(tres: str) -> list[str]:
    """Every way in which a pattern may name the GRES of a job: gpu, gpu:2, gpu:a100, gpu:a100:2."""
    names: list[str] = []
    for name, count in _tres(tres):
        if name.startswith("gres/") and count not in ("", "0"):
            plain = name.removeprefix("gres/")
            names += [plain.partition(":")[0], plain, f"{plain}:{count}"]
    names = list(dict.fromkeys(names))
    return names + [f"gres/{name}" for name in names]


def _tres(text: str) -> list[tuple[str, str]]:
    pairs = (part.partition("=") for part in text.split(",") if part)
    return [(name, count) for name, _, count in pairs]


def _first_rule(rules: Sequence[Rule], subject: Subject, now: float) -> tuple[int, Rule]:
    for number, rule in enumerate(rules, 1):
        if _matches(rule, subject) and _holds(rule, now):
            return number, rule
    return 0, Rule()


def _matches(rule: Rule, subject: Subject) -> bool:
    pairs = (
        (rule.cluster, (subject.cluster,)),
        (rule.partition, (subject.partition,)),
        (rule.qos, (subject.qos,)),
        (rule.account, (subject.account,)),
        (rule.user, (subject.user,)),
        (rule.job_name, (subject.name,)),
        (rule.gres, gres_names(subject.tres)),
    )
    return all(not patterns or _any(patterns, values) for patterns, values in pairs)


def _any(patterns: Sequence[str], values: Sequence[str]) -> bool:
    return any(fnmatchcase(value, pattern) for value in values for pattern in patterns)


def _holds(rule: Rule, now: float) -> bool:
    if not rule.hours:
        return True
    at = local(now, parse_zone(rule.timezone))
    return any(span.holds(at, frozenset()) for span in parse_hours(rule.hours))


def _first_desk(desks: Sequence[Desk], subject: Subject) -> Desk | None:
    for desk in desks:
        by_account = not desk.account or _any(desk.account, (subject.account,))
        if by_account and (not desk.partition or _any(desk.partition, (subject.partition,))):
            return desk
    return None


def _spans(config: Config, desk: Desk | None, now: float) -> tuple[float, float, str]:
    """(window, grace, where the window comes from)."""
    window, grace = config.idle.window, config.idle.grace
    if desk is None:
        return window, grace, "idle.window"
    zone = parse_zone(desk.timezone)
    working = at_work(desk, now)
    own = desk.window if working else desk.window_off
    own_grace = desk.grace if working else desk.grace_off
    when = "within working hours" if working else "outside of working hours"
    why = f"desk {desk.name} {when}" if own is not None else "idle.window"
    window = window if own is None else own
    grace = grace if own_grace is None else own_grace
    swept = last_time(tuple(map(parse_time, desk.sweeps)), now, zone)
    if swept and now - swept < SWEEP_LASTS and desk.sweep_window < window:
        window, why = desk.sweep_window, f"sweep of desk {desk.name}"
    return window, grace, why


def at_work(desk: Desk, now: float) -> bool:
    if not desk.hours:
        return True
    closed = frozenset(map(parse_day, desk.holidays))
    at = local(now, parse_zone(desk.timezone))
    return any(span.holds(at, closed) for span in parse_hours(desk.hours))
