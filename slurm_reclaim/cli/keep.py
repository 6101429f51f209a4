"""`reclaim keep JOB`: the answer to a warning."""

from __future__ import annotations

import click

from slurm_reclaim.cli import phrases, shape
from slurm_reclaim.cli.app import App, json_option, pass_app
from slurm_reclaim.cli.job import job_argument
from slurm_reclaim.config.units import parse_duration
from slurm_reclaim.model.session import Session


def _seconds(context: click.Context, parameter: click.Parameter, value: str | None) -> float:
    if value is None:
        return 0.0
    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("keep")
@job_argument
@click.option(
    "--for", "seconds", metavar="TIME", callback=_seconds,
    help="For how long, such as 90m or 4h; without it what the site has set.",
)  # fmt: skip
@json_option
@pass_app
def command(app: App, job: str, seconds: float) -> None:
    """Keep the session of JOB from being hibernated for a while.

    Idle or not. It withdraws a warning, stops a hibernation that is under way, and the idle window
    begins anew.
    """
    body = {"seconds": seconds}
    session = app.ask(lambda c: c.post(f"/v1/sessions/{job}/keep", body, Session))
    if app.output.json:
        app.output.value(shape.session(session))
        return
    app.output.text(f"job {session.job} is kept until {phrases.moment(session.kept_until)}")
