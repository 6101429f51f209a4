"""`reclaim brake`: for operators, stop and allow the hibernation of idle sessions."""

from __future__ import annotations

from dataclasses import dataclass

import click

from slurm_reclaim.cli.app import App, json_option, pass_app
from slurm_reclaim.model.status import Status


@dataclass(frozen=True)
class _Brake:
    reason: str = ""


@click.command("brake")
@click.option("--pull", metavar="REASON", default="", help="From now on nothing is hibernated.")
@click.option("--release", is_flag=True, help="Let it go.")
@json_option
@pass_app
def command(app: App, pull: str, release: bool) -> None:
    """Show, pull or release the brake (operators only).

    While it is pulled no idle session is warned or hibernated; what owners ask for is done. It is
    pulled by itself where too many hibernations fail or too many warnings are answered ([limits]).
    """
    if pull and release:
        raise click.UsageError("--pull and --release exclude each other")
    if pull or release:
        wish = {"reason": pull}
        reason = app.ask(lambda c: c.post("/v1/brake", wish, _Brake)).reason
    else:
        reason = app.ask(lambda c: c.get("/v1/status", Status)).brake
    if app.output.json:
        app.output.value({"pulled": bool(reason), "reason": reason})
        return
    app.output.text(f"the brake is pulled: {reason}" if reason else "the brake is off")
