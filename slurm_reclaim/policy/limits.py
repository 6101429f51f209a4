"""How much is hibernated at once, and the brake that stops everything."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_reclaim.config.schema import Limits


@dataclass(frozen=True, slots=True)
class Load:
    """Hibernations at work on the session's node and in all; begun within the last hour."""

    on_node: int
    in_all: int
    last_hour: int


@dataclass(frozen=True, slots=True)
class Tally:
    """What happened within limits.brake_span: hibernations of idle sessions that ended well or
    failed, warnings that ran out or were answered by a use or a keep."""

    hibernated: int = 0
    failed: int = 0
    ran_out: int = 0
    kept: int = 0


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
    tried = tally.hibernated + tally.failed
    if tried >= limits.brake_least and tally.failed / tried > limits.brake_failures:
        return f"{tally.failed} of {tried} hibernations failed (limits.brake_failures)"
    warned = tally.ran_out + tally.kept
    if warned >= limits.brake_least and tally.kept / warned > limits.brake_keeps:
        return f"{tally.kept} of {warned} warnings were answered (limits.brake_keeps)"
    return ""
