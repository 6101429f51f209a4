"""`reclaim restore JOB` (alias resume): bring a hibernated session back."""

from __future__ import annotations

import os

import click

from slurm_reclaim.adapters.transport.client import ControllerClient
from slurm_reclaim.cli import outcome, shape
from slurm_reclaim.cli.app import App, json_option, pass_app
from slurm_reclaim.cli.job import job_argument
from slurm_reclaim.cli.outcome import Ended
from slurm_reclaim.cli.wait import follow, waiting_options
from slurm_reclaim.model.session import Session


@click.command("restore")
@job_argument
@click.option(
    "--accept-changed",
    "accept",
    metavar="FILE",
    multiple=True,
    help="Open FILE as it is now, though it changed while the session slept. Repeatable.",
)
@waiting_options
@json_option
@pass_app
def command(app: App, job: str, accept: tuple[str, ...], wait: bool, timeout: float) -> None:
    """Bring the hibernated session of JOB back on a node that fits. Alias: resume.

    Waits in the queue like any job. If the restore fails, the checkpoint is kept and the job is
    held again. Files that the session has open or mapped must be as they were: all that are not
    are named, before anything is started.
    """
    path = f"/v1/sessions/{job}/restore"
    body = {"accept": [os.path.abspath(file) for file in accept]}
    session = follow(app, job, path, body, _judge, timeout if wait else 0)
    if app.output.json:
        app.output.value(shape.session(session))
    elif wait:
        app.output.text(f"job {session.job} is back on {session.node}")
    else:
        app.output.text(f"job {session.job}: asked for; look with: reclaim show {session.job}")


async def _judge(_: ControllerClient, asked: Session, now: Session) -> Ended | None:
    return outcome.of_restore(asked, now)
