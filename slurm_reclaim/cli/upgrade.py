"""`reclaim check --upgrade`: what an upgrade of nodes would cost, and whose it is."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from slurm_reclaim.cli import phrases
from slurm_reclaim.cli.app import App
from slurm_reclaim.model.upgrade import Affected, Forecast, Upgrade

MOMENTS = ["%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%d"]
_HEADER = ("JOBID", "USER", "STATE", "VRAM", "AFTERWARDS", "WHY")
_PATIENCE = 600.0  # seconds; all owners are told before the answer comes


def plan(app: App, *, at: datetime | None, **wanted: Any) -> bool:
    """Show it; whether any session would be lost."""
    upgrade = Upgrade(**wanted, deadline=at.timestamp() if at is not None else 0.0)
    found = app.ask(lambda c: c.post("/v1/upgrade", upgrade, Forecast, timeout=_PATIENCE))
    affected = sorted(found.affected, key=lambda each: (not each.lost, each.user, each.job))
    lost = [each for each in affected if each.lost]
    if app.output.json:
        app.output.value(
            {
                "looked": found.looked,
                "unknown_nodes": found.unknown,
                "affected": [_shape(each) for each in affected],
            }
        )
        return bool(lost)
    app.output.table(_HEADER, [_row(each) for each in affected], empty="no checkpoint is affected")
    app.output.say(_sum(found, lost))
    if upgrade.notify:
        app.output.say(_told(lost))
    return bool(lost)


def _row(each: Affected) -> tuple[str, ...]:
    return (
        each.job,
        each.user,
        each.state,
        phrases.size(each.vram) if each.vram else "-",
        "LOST" if each.lost else f"on {each.left}",
        each.why,
    )


def _sum(found: Forecast, lost: list[Affected]) -> str:
    text = f"{found.looked} hibernated sessions looked at, {len(lost)} would be lost"
    if found.unknown:
        text += f"; nothing is known of {found.unknown}, whose agents have not reported"
    return text


def _told(lost: list[Affected]) -> str:
    silent = [each for each in lost if not each.told]
    text = f"{len(lost) - len(silent)} owners told"
    for each in silent:
        text += f"\n{each.user} (job {each.job}) not told: {'; '.join(each.failed) or 'no channel'}"
    return text


def _shape(each: Affected) -> dict[str, Any]:
    return {
        "session": each.session,
        "job": each.job,
        "user": each.user,
        "state": each.state,
        "lost": each.lost,
        "why": each.why,
        "left": each.left,
        "vram_freed": each.vram or None,
        "told": list(each.told),
        "failed": list(each.failed),
    }
