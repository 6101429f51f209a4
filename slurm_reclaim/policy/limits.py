"""How much is hibernated at once, and the brake that stops everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slurm_reclaim.config.schema import Limits

Counts = Mapping[Any, int]  # how often to each owner, by whatever tells owners apart


@dataclass(frozen=True, slots=True)
class Load:
    """Hibernations at work on the session's node and in all; begun within the last hour."""

    on_node: int
    in_all: int
    last_hour: int


@dataclass(frozen=True, slots=True)
class Tally:
    """What happened within limits.brake_span, how often to each owner: hibernations of idle
    sessions that ended well or failed, warnings that ran out or were answered by a use or a
    keep."""

    hibernated: Counts = field(default_factory=dict)
    failed: Counts = field(default_factory=dict)
    ran_out: Counts = field(default_factory=dict)
    kept: Counts = field(default_factory=dict)


def full(limits: Limits, load: Load) -> str:
    """Why one more must wait; "" where it need not."""
    if load.on_node >= limits.per_node:
        return f"{load.on_node} hibernations at work on the node (limits.per_node)"
    if load.in_all >= limits.per_store:
        return f"{load.in_all} hibernations at work (limits.per_store)"
    if load.last_hour >= limits.per_hour:
        return f"{load.last_hour} hibernations within an hour (limits.per_hour)"
    return ""


def brake(limits: Limits, tally: Tally) -> str:
    """Why everything should stop; "" where all is well."""
    if _too_many(limits, tally.failed, tally.hibernated, limits.brake_failures):
        said = _said(tally.failed, tally.hibernated)
        return f"{said[0]} of {said[1]} hibernations failed, {said[2]} (limits.brake_failures)"
    if _too_many(limits, tally.kept, tally.ran_out, limits.brake_keeps):
        said = _said(tally.kept, tally.ran_out)
        return f"{said[0]} of {said[1]} warnings were answered, {said[2]} (limits.brake_keeps)"
    return ""


def _too_many(limits: Limits, bad: Counts, good: Counts, most: float) -> bool:
    """Every owner counts as one, by the share of their own cases: a few who keep a hundred
    sessions, or whose programs can't be dumped, stop nobody else's."""
    cases = sum(bad.values()) + sum(good.values())
    hit = sum(count > 0 for count in bad.values())
    if cases < limits.brake_least or hit < limits.brake_owners:
        return False
    owners = bad.keys() | good.keys()
    share = sum(bad.get(o, 0) / (bad.get(o, 0) + good.get(o, 0)) for o in owners) / len(owners)
    # Not for the rounding of a sum.
    return share > most + 1e-9


def _said(bad: Counts, good: Counts) -> tuple[int, int, str]:
    count = sum(bad.values())
    return count, count + sum(good.values()), f"of {len(bad)} of {len(bad.keys() | good)} owners"
