"""`reclaim events`: what happened, in order, with the reasons."""

from __future__ import annotations

from urllib.parse import urlencode

import click

from slurm_reclaim.adapters.transport.client import ControllerClient
from slurm_reclaim.cli import phrases, shape
from slurm_reclaim.cli.app import App, json_option, pass_app
from slurm_reclaim.model.event import Event
from slurm_reclaim.model.ids import parse_job_ref

_HEADER = ("TIME", "JOBID", "EVENT", "NODE", "WHAT")


def _parse(context: click.Context, parameter: click.Parameter, value: str | None) -> str:
    return "" if value is None else str(parse_job_ref(value))


@click.command("events")
@click.argument("job", metavar="[JOB]", required=False, callback=_parse)
@click.option(
    "-n", "--limit", type=click.IntRange(1, 10000), default=200, show_default=True,
    help="At most this many.",
)  # fmt: skip
@click.option(
    "--after", type=click.IntRange(0), default=0, help="Only events with a higher number (`seq`)."
)
@json_option
@pass_app
def command(app: App, job: str, limit: int, after: int) -> None:
    """Show the events of JOB, or of every session you may see."""
    events = app.ask(lambda c: ask(c, job=job, after=after, limit=limit))
    if app.output.json:
        app.output.value({"events": [shape.event(e) for e in events]})
        return
    app.output.table(_HEADER, [_row(e) for e in events], empty="no events")


async def ask(
    controller: ControllerClient, *, job: str = "", after: int = 0, limit: int = 200
) -> list[Event]:
    query = urlencode({"job": job, "after": after, "limit": limit})
    return await controller.get(f"/v1/events?{query}", list[Event])


def _row(event: Event) -> tuple[str, ...]:
    return (
        phrases.moment(event.at),
        str(event.details.get("task") or event.job_id or "-"),
        event.kind,
        event.node or "-",
        phrases.event(event),
    )
