"""Grace weighted by what an idle session costs its owner: TRES billing x price, bounded."""

from __future__ import annotations

from slurm_reclaim.config.schema import Cost


def weighted(grace: float, cost: Cost, tres: str) -> float:
    """Seconds of grace: as configured at the par cost, half of it at twice the cost, and so on,
    within the bounds. As configured where there is no price or Slurm shows no billing."""
    hourly = billing(tres) * cost.price
    if hourly <= 0:
        return grace
    return min(max(grace * cost.par / hourly, cost.shortest), cost.longest)


def billing(tres: str) -> float:
    """Billing units of a job by its partition's TRESBillingWeights; 0 where Slurm shows none."""
    for part in tres.split(","):
        name, _, count = part.partition("=")
        if name == "billing":
            try:
                return float(count)
            except ValueError:
                return 0.0
    return 0.0
