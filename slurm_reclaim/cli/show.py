"""`reclaim show JOB`: one session in full."""

from __future__ import annotations

import time

import click

from slurm_reclaim.cli import phrases, shape
from slurm_reclaim.cli.app import App, json_option, pass_app
from slurm_reclaim.cli.job import job_argument
from slurm_reclaim.model.session import Session
from slurm_reclaim.model.words import span


@click.command("show")
@job_argument
@json_option
@pass_app
def command(app: App, job: str) -> None:
    """Show all that is known of the session of JOB."""
    session = app.ask(lambda c: c.get(f"/v1/sessions/{job}", Session))
    if app.output.json:
        app.output.value(shape.session(session))
        return
    app.output.record(_pairs(session, time.time()))


def _pairs(session: Session, now: float) -> list[tuple[str, str]]:
    saved = phrases.checkpoint(session)
    return [
        ("job", f"{session.job} ({session.name})"),
        ("user", f"{session.user}, account {session.account}" if session.account else session.user),
        ("partition", ", ".join(part for part in (session.partition, session.qos) if part)),
        (
            "state",
            f"{session.state} since {phrases.moment(session.since)} ({span(now - session.since)})",
        ),
        ("reason", session.reason),
        ("progress", phrases.progress(session.progress, None)),
        ("node", phrases.node(session)),
        ("last node", "" if phrases.node(session) else session.node),
        ("requeues", str(session.restarts)),
        ("resources", session.tres),
        ("checkpoint", f"{saved}, of run {session.checkpoint}" if saved else ""),
        ("VRAM", phrases.vram(session)),
        ("GPUs", phrases.gpus(session)),
        ("time left", span(session.time_left) if session.time_left else ""),
        ("hibernated at", _deadline(session)),
        ("kept until", phrases.moment(session.kept_until if session.kept_until > now else 0)),
        ("blockers", "\n".join(session.blockers)),
        ("can't return", session.unfit.reason if session.unfit is not None else ""),
        ("not on", ", ".join(session.bad_nodes)),
        ("session", str(session.id)),
        ("next", phrases.next_step(session)),
    ]


def _deadline(session: Session) -> str:
    warned = session.warned
    if warned is None or not warned.deadline:
        return ""
    told = ", ".join(str(each.channel) for each in warned.deliveries if each.ok)
    return f"{phrases.moment(warned.deadline)} unless it is used (told by: {told or 'nobody yet'})"
