"""`reclaim replay TRACE`: what a configuration would have done."""

from __future__ import annotations

from typing import Any

import click

from slurm_reclaim.cli import phrases
from slurm_reclaim.cli.app import App, json_option, pass_app
from slurm_reclaim.config.load import load
from slurm_reclaim.model.words import span
from slurm_reclaim.policy.outcome import Absence, Outcome, outcome
from slurm_reclaim.policy.replay import Replay

_HEADER = ("TIME", "SESSION", "USER", "GPUS", "AWAY", "REASON")


@click.command("replay")
@click.argument("trace", metavar="TRACE")
@click.option("--policy", "path", metavar="FILE", help="Judge by FILE; else by this host's own.")
@click.option("--no-limits", is_flag=True, help="Without [limits] and its brake.")
@json_option
@pass_app
def command(app: App, trace: str, path: str | None, no_limits: bool) -> None:
    """Show what would have been hibernated on TRACE.

    As if the mode were prod. TRACE is a file of docs/trace.md, "-" standard input.
    """
    # Imported late: the reader of compressed files.
    from slurm_reclaim.adapters.trace import read

    config = load(path) if path else app.config()
    replayed = Replay(config, limited=not no_limits).run(read(trace))
    found = outcome(replayed)
    if app.output.json:
        app.output.value(_json(found, replayed))
        return
    app.output.table(
        _HEADER, [_row(one, replayed) for one in found.absences], empty="nothing was hibernated"
    )
    app.output.record(_pairs(found))


def _row(absence: Absence, replayed: Replay) -> tuple[str, ...]:
    seat = replayed.seats[absence.act.session]
    away = span(absence.seconds) + ("" if absence.returned else "+")
    return (
        phrases.moment(absence.begin),
        absence.act.session,
        seat.watched.user or "-",
        str(seat.gpus),
        f"{away} !" if absence.surprised else away,
        absence.act.reason,
    )


def _pairs(found: Outcome) -> list[tuple[str, str]]:
    share = f", {found.freed / found.idle:.1%} of the time without use" if found.idle else ""
    return [
        ("sessions", f"{found.sessions}, watched for {found.watched / 3600:.1f} hours"),
        ("hibernations", str(len(found.absences))),
        ("freed", f"{found.gpu_freed / 3600:.1f} GPU-hours; {found.freed / 3600:.1f} hours{share}"),
        ("warnings", f"{found.warned}, {found.withdrawn} of them withdrawn within the grace"),
        ("surprised", f"{len(found.surprised)} owners back within 15 minutes (marked !)"),
        ("told only", str(found.notified) if found.notified else ""),
        ("blocked", str(found.blocked) if found.blocked else ""),
        ("brake", found.braked),
    ]


def _json(found: Outcome, replayed: Replay) -> dict[str, Any]:
    return {
        "sessions": found.sessions,
        "watched_hours": found.watched / 3600,
        "idle_hours": found.idle / 3600,
        "freed_hours": found.freed / 3600,
        "freed_gpu_hours": found.gpu_freed / 3600,
        "warned": found.warned,
        "withdrawn": found.withdrawn,
        "notified": found.notified,
        "blocked": found.blocked,
        "surprised": len(found.surprised),
        "brake": found.braked,
        "acts": [
            {
                "session": act.session,
                "at": act.at,
                "act": act.kind.value,
                "idle_seconds": act.idle,
                "reason": act.reason,
            }
            for act in replayed.acts
        ],
    }
