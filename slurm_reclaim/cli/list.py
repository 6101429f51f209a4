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
    app.output.table(_HEADER, [_row(s, time.time()) for s in sessions], empty="no sessions")


def _row(session: Session, now: float) -> tuple[str, ...]:
    return (
        session.job,
        session.user,
        session.name,
        str(session.state),
        span(now - session.since),
        phrases.node(session) or "-",
        phrases.checkpoint(session) or "-",
        phrases.reason(session),
    )
