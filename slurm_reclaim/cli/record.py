"""`reclaim record`: what the agents measure, as a trace."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import urlencode

import click

from slurm_reclaim.adapters.transport.client import ControllerClient
from slurm_reclaim.cli.app import App, pass_app, patiently
from slurm_reclaim.config.units import parse_duration
from slurm_reclaim.errors import TraceError
from slurm_reclaim.model.trace import Entry, Header, Measured, Recorded
from slurm_reclaim.model.words import clock

WAIT = 10.0  # seconds reclaimd holds a question open
PATIENCE = 300.0  # seconds without reclaimd; longer and the recording ends

Put = Callable[[Iterable[Entry]], None]


def _seconds(context: click.Context, parameter: click.Parameter, value: str) -> float:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("record")
@click.option("--output", required=True, metavar="FILE", help="A new file; .zst compresses it.")
@click.option(
    "--for", "seconds", metavar="TIME", default="1h", show_default=True, callback=_seconds,
    help="For how long, such as 30m or 8h.",
)  # fmt: skip
@pass_app
def command(app: App, output: str, seconds: float) -> None:
    """Record what is measured of every session, for operators.

    The file is a trace (docs/trace.md) for `reclaim replay`. It names users and jobs, and when
    they were at work. An interrupt ends the recording and keeps what there is.
    """
    from slurm_reclaim.adapters.trace import writing

    if os.path.exists(output):
        raise TraceError(f"{output}: is there already")
    recorder = Recorder()
    with writing(output) as put:
        try:
            app.ask(lambda c: recorder.run(c, put, time.monotonic() + seconds))
        except KeyboardInterrupt:
            app.output.say("interrupted")
    app.output.say(recorder.summary())


class Recorder:
    """`last`: per session the end of its last sample; agents repeat what was not answered."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._samples = self._lost = 0

    async def run(self, controller: ControllerClient, put: Put, until: float) -> None:
        began = await controller.get("/v1/samples", Recorded)
        put((Header(began.cluster, f"recorded {clock(time.time())}"),))
        number = began.last
        while (left := until - time.monotonic()) > 0:
            query = urlencode({"after": number, "wait": max(1, round(min(WAIT, left)))})

            async def ask(path: str = f"/v1/samples?{query}") -> Recorded:
                return await controller.get(path, Recorded)

            found = await patiently(ask, min(PATIENCE, left), lambda: asyncio.sleep(2.0))
            number = found.last
            self._lost += found.lost
            put(self._new(found))

    def summary(self) -> str:
        lost = f"; {self._lost} were lost, reclaimd had no more room for them" if self._lost else ""
        return f"{self._samples} samples of {len(self._last)} sessions{lost}"

    def _new(self, found: Recorded) -> Iterator[Entry]:
        for watched in found.sessions:
            if watched.session not in self._last:
                self._last[watched.session] = 0.0
                yield watched
        for measured in found.samples:
            if measured.sample.at > self._last[measured.session]:
                self._last[measured.session] = measured.sample.at
                self._samples += 1
                yield Measured(measured.session, measured.sample)
