"""The JOB argument: a job id in any form Slurm writes, refused with a hint where it names no one
job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from slurm_reclaim.model.ids import parse_job_ref


def _parse(context: click.Context, parameter: click.Parameter, value: str) -> str:
    return str(parse_job_ref(value))


def job_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.argument("job", metavar="JOB", callback=_parse)(command)
