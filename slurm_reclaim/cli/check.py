"""`reclaim check`: is everything there that an installation needs?"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import click

from slurm_reclaim import __version__
from slurm_reclaim.checks.host import Host
from slurm_reclaim.checks.notices import Channels
from slurm_reclaim.checks.result import Check, Verdict
from slurm_reclaim.checks.survey import Ways, survey
from slurm_reclaim.cli.app import App, json_option, pass_app
from slurm_reclaim.cli.upgrade import MOMENTS, plan
from slurm_reclaim.config.load import load_with_origins
from slurm_reclaim.model.status import Status

FAILED = 1


@click.command("check")
@click.option("--upgrade", is_flag=True, help="Show which checkpoints an upgrade would cost.")
@click.option("--nodes", default="", metavar="NODES", help="That are upgraded (n[1-4]).")
@click.option("--driver", default="", metavar="VERSION", help="The NVIDIA driver's then.")
@click.option("--kernel", default="", metavar="VERSION", help="The kernel's then.")
@click.option("--criu", default="", metavar="VERSION", help="CRIU's then.")
@click.option("--glibc", default="", metavar="VERSION", help="The C library's then.")
@click.option("--notify", is_flag=True, help="Tell the owners of what would be lost.")
@click.option("--at", type=click.DateTime(MOMENTS), metavar="TIME", help="When (2026-12-24 18:00).")
@json_option
@pass_app
@click.pass_context
def command(context: click.Context, app: App, /, upgrade: bool, **planned: Any) -> None:
    """Name what an installation needs: ok, failed or not checked.

    Each with a hint what to do. Checks what can be seen from this host: as root on a compute
    node also CRIU, kernel, plugin and store. Exit status 1 if anything failed.

    With --upgrade nothing else is checked: hibernated sessions are listed that fewer nodes, or
    none, could restore after the upgrade. Exit status 1 if any would be lost.
    """
    if upgrade:
        context.exit(FAILED if plan(app, **planned) else 0)
    if any(planned.values()):
        raise click.UsageError("--nodes, --driver and the like belong to --upgrade")
    checks = survey(
        Ways(
            host=Host(),
            load=lambda: load_with_origins(app.config_path),
            ask=lambda: app.ask(lambda c: c.get("/v1/status", Status)),
            codec=app.codec(),
            channels=channels(),
            remote=remote,
            version=__version__,
        )
    )
    counts = Counter(check.verdict for check in checks)
    if app.output.json:
        app.output.value(
            {
                "ok": not counts[Verdict.FAILED],
                "checks": [
                    {
                        "family": c.family,
                        "name": c.name,
                        "verdict": str(c.verdict),
                        "what": c.what,
                        "hint": c.hint,
                    }
                    for c in checks
                ],
            }
        )
    else:
        app.output.table(("", "CHECK", "SEEN"), [_row(c) for c in checks], empty="nothing to check")
        app.output.text(", ".join(f"{counts[v]} {v}" for v in Verdict if counts[v]))
    if counts[Verdict.FAILED]:
        context.exit(FAILED)


def channels() -> Channels:
    """The ways to people as reclaimd has them; imported here, for they are slow to load."""
    from slurm_reclaim.adapters.notify import hook, mail, texts, trust, webhook

    return Channels(
        greet=lambda settings: asyncio.run(mail.greet(settings)),
        secret=trust.secret,
        hooks=hook.find,
        texts=texts.mistakes,
        origin=webhook.shown,
    )


def remote(url: str, options: str) -> tuple[float, float]:
    """The store's remote place; imported here, for it is slow to load."""
    from slurm_reclaim.adapters.store import probe

    return probe.look(url, options)


def _row(check: Check) -> tuple[str, ...]:
    what = check.what + (f" -> {check.hint}" if check.hint else "")
    return str(check.verdict), f"{check.family}: {check.name}", what.replace("\n", " ")
