"""`reclaim list`: the sessions one may see."""

from __future__ import annotations

import time

import click

from slurm_reclaim.cli import phrases, shape
from slurm_reclaim.cli.app import App, json_option, pass_app
from slurm_reclaim.model.session import Session
from slurm_reclaim.model.words import span

_HEADER = ("JOBID", "USER", "NAME", "STATE", "FOR", "NODE", "CHECKPOINT", "REASON")


@click.command("list")
@click.option("-a", "--all", "ended", is_flag=True, help="Sessions that have ended, too.")
@json_option
@pass_app
def command(app: App, ended: bool) -> None:
    """Show your sessions; operators and root see everybody's."""
    sessions = app.ask(lambda c: c.get(f"/v1/sessions?all={int(ended)}", list[Session]))
    sessions.sort(key=lambda s: (s.id.job_id, s.id.submitted))
    if app.output.json:
        app.output.value({"sessions": [shape.session(s) for s in sessions]})
        return
    # A column of its own only where somebody has a GPU.
    vram = any(phrases.vram(s) for s in sessions)
    header = (*_HEADER[:-1], "VRAM", _HEADER[-1]) if vram else _HEADER
    rows = [_row(s, time.time(), vram) for s in sessions]
    app.output.table(header, rows, empty="no sessions")


def _row(session: Session, now: float, vram: bool) -> tuple[str, ...]:
    return (
        session.job,
        session.user,
        session.name,
        str(session.state),
        span(now - session.since),
        phrases.node(session) or "-",
        phrases.checkpoint(session) or "-",
        *([phrases.vram(session) or "-"] if vram else []),
        phrases.reason(session),
    )
