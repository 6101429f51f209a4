"""Ask for long work and stay until it has ended, or not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import click

from slurm_reclaim.adapters.transport.client import ControllerClient
from slurm_reclaim.cli.app import App, patiently
from slurm_reclaim.cli.meter import Meter
from slurm_reclaim.cli.outcome import Ended
from slurm_reclaim.config.units import parse_duration
from slurm_reclaim.errors import Unavailable
from slurm_reclaim.model.session import Session

# (the session as the request was answered, as it is now) -> how it ended, if it has.
Judge = Callable[[ControllerClient, Session, Session], Awaitable[Ended | None]]

PAUSE = 0.5  # seconds between two looks
PATIENCE = 60.0  # seconds reclaimd may be away meanwhile


def _duration(context: click.Context, parameter: click.Parameter, value: str | None) -> float:
    if value is None:
        return float("inf")
    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def waiting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --wait/--no-wait and --timeout."""
    command = click.option(
        "--timeout",
        metavar="DURATION",
        callback=_duration,
        help='Stop waiting after, for example, "10m"; the work goes on.  [default: never]',
    )(command)
    return click.option(
        "--wait/--no-wait", default=True, show_default=True, help="Stay until it has ended."
    )(command)


def follow(app: App, job: str, path: str, body: object, judge: Judge, timeout: float) -> Session:
    """POST `body` to `path` and wait. Raises the error it ended with; `timeout` 0: don't wait."""

    async def talk(controller: ControllerClient) -> Session:
        asked = await controller.post(path, body, Session)
        if timeout == 0:
            return asked
        with Meter(app.output) as meter:
            return await _until_ended(controller, asked, judge, meter, timeout)

    try:
        return app.ask(talk)
    except KeyboardInterrupt:
        app.output.say(f"reclaim: it goes on without you; look with: reclaim show {job}")
        raise


async def _until_ended(
    controller: ControllerClient, asked: Session, judge: Judge, meter: Meter, timeout: float
) -> Session:
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout
    while True:
        now = await patiently(lambda: _look(controller, asked), PATIENCE, _pause)
        ended = await judge(controller, asked, now)
        if ended is not None:
            if ended.error is not None:
                raise ended.error
            return now
        meter.show(now)
        if clock() >= deadline:
            raise Unavailable(
                f"job {now.job} is still {now.state} ({now.reason}); not waiting any longer",
                hint=f"it goes on; look with: reclaim show {now.job}",
            )
        await _pause()


async def _look(controller: ControllerClient, asked: Session) -> Session:
    return await controller.get(f"/v1/sessions/{asked.job}", Session)


async def _pause() -> None:
    await asyncio.sleep(PAUSE)
