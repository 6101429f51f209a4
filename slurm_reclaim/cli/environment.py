"""`reclaim environment`: what Slurm says of the job's allocation now, inside of the session."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import click

from slurm_reclaim.cli.app import App, json_option, pass_app
from slurm_reclaim.errors import BadRequest, NotManaged, NotPermitted

FOLDER = "environment"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@click.command("environment")
@json_option
@pass_app
def command(app: App) -> None:
    """Show what Slurm has set for this job's present run.

    After a restore the job may have other GPUs and another node, but its processes keep the
    environment that they were started with. In a shell of the session:
    eval "$(reclaim environment)"
    """
    job = os.environ.get("SLURM_JOB_ID", "")
    if not job.isdecimal():
        raise BadRequest("SLURM_JOB_ID is not set", hint="run it inside of a job's session")
    found = read(Path(app.config().agent.run), job)
    if app.output.json:
        app.output.value({"job": int(job), "variables": found})
        return
    for name, value in sorted(found.items()):
        app.output.text(f"export {name}={shlex.quote(value)}")


def read(run: Path, job: str) -> dict[str, str]:
    """Raises NotManaged, NotPermitted."""
    try:
        # Only root can put files there.
        said = json.loads((run / FOLDER / job).read_bytes().decode("utf-8", "surrogateescape"))
    except FileNotFoundError:
        raise NotManaged(
            f"job {job} has no session of slurm-reclaim on this node",
            hint="SLURM_JOB_ID is that of the job; of a job that is not managed, the environment "
            "is as Slurm set it",
        ) from None
    except PermissionError:
        raise NotPermitted(f"job {job} belongs to another user") from None
    return {name: value for name, value in said["variables"].items() if _NAME.fullmatch(name)}
