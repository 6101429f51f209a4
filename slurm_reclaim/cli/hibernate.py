"""`reclaim hibernate JOB` (alias pause): put a running session to disk now."""

from __future__ import annotations

import click

from slurm_reclaim.adapters.transport.client import ControllerClient
from slurm_reclaim.cli import events, outcome, phrases, shape
from slurm_reclaim.cli.app import App, json_option, pass_app
from slurm_reclaim.cli.job import job_argument
from slurm_reclaim.cli.outcome import Ended
from slurm_reclaim.cli.wait import follow, waiting_options
from slurm_reclaim.model.lifecycle import RUNNING_STATES
from slurm_reclaim.model.session import Session


@click.command("hibernate")
@job_argument
@click.option("--reason", default="", help="Why, for the event log and squeue.")
@waiting_options
@json_option
@pass_app
def command(app: App, job: str, reason: str, wait: bool, timeout: float) -> None:
    """Put the session of JOB to disk and give its resources back. Alias: pause.

    Nothing is ended before the checkpoint is complete and verified. If it can't be made, the
    session runs on.
    """
    path = f"/v1/sessions/{job}/hibernate"
    session = follow(app, job, path, {"reason": reason}, _judge, timeout if wait else 0)
    if app.output.json:
        app.output.value(shape.session(session))
        return
    app.output.text(_sentence(session, wait))


async def _judge(controller: ControllerClient, asked: Session, now: Session) -> Ended | None:
    """The events are asked for only when the session runs again and the reason is wanted."""
    since = []
    if now.state in RUNNING_STATES:
        since = [e for e in await events.ask(controller, job=now.job) if e.at >= asked.since]
    return outcome.of_hibernation(asked, now, since)


def _sentence(session: Session, waited: bool) -> str:
    if not waited:
        return f"job {session.job}: asked for; look with: reclaim show {session.job}"
    saved = phrases.checkpoint(session)
    return (
        f"job {session.job} is hibernated" + (f" ({saved})" if saved else "") + "; "
        f"{phrases.next_step(session)}"
    )
