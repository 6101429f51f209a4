"""`reclaim notice`: the ways to people, tried."""

from __future__ import annotations

import asyncio
import getpass
import logging
import secrets
import time
from dataclasses import replace

import click

from slurm_reclaim.cli.app import App, json_option, pass_app
from slurm_reclaim.config.schema import Config
from slurm_reclaim.errors import OperationFailed
from slurm_reclaim.model.notice import Channel, Delivery, Notice, NoticeKind

# Those that start at the controller; a terminal and a comment belong to a session.
_OURS = [Channel.MAIL.value, Channel.WEBHOOK.value, Channel.HOOK.value]


@click.group("notice")
def command() -> None:
    """The ways to owners and admins."""


@command.command("test")
@click.option("--to", metavar="USER", help="Who gets the mail; you, if left out.")
@click.option("--channel", type=click.Choice(_OURS), help="Only this, even if not switched on.")
@click.option(
    "--kind",
    type=click.Choice([kind.value for kind in NoticeKind]),
    default=NoticeKind.WARNING.value,
    show_default=True,
    help="Which notice.",
)
@json_option
@pass_app
@click.pass_context
def test(context: click.Context, app: App, to: str | None, channel: str | None, kind: str) -> None:
    """Send a sample notice by mail, webhook and hooks.

    Exit code 40 if one does not arrive.

    Runs on the controller's host, as root or as the account of reclaimd, whose rights it takes.
    """
    from slurm_reclaim.adapters.notify import texts, trust
    from slurm_reclaim.adapters.notify.notices import Notices

    config = app.config()
    user = to or getpass.getuser()
    channels = [channel] if channel else [c for c in config.notice.channels if c in _OURS]
    if not channels:
        raise OperationFailed(
            "notice.channels names no mail, webhook or hook",
            hint="--channel tries one that is not switched on",
        )
    config = replace(config, notice=replace(config.notice, channels=channels))
    trust.become(config.controller.user)
    for mistake in texts.mistakes(config.notice.texts):
        app.output.say(f"warning: {mistake}")
    # What it logs is what is shown below.
    logging.getLogger("slurm_reclaim").addHandler(logging.NullHandler())
    notice = sample(config, NoticeKind(kind), user)
    found = asyncio.run(Notices(lambda: config).deliver(notice))
    if app.output.json:
        app.output.value({"notice": notice.id, "deliveries": [_shape(each) for each in found]})
    else:
        rows = [(str(each.channel), each.to or "-", _outcome(each)) for each in found]
        app.output.table(("CHANNEL", "TO", "OUTCOME"), rows, empty="nothing was tried")
    if not all(each.ok for each in found):
        context.exit(OperationFailed.exit_code)


def sample(config: Config, kind: NoticeKind, user: str) -> Notice:
    """A notice of no session, which says so wherever a text names its job or the reason."""
    now = time.time()
    return Notice(
        id=secrets.token_hex(8),
        kind=kind,
        cluster=config.slurm.cluster or "test",
        job="TEST",
        job_name="only a test, no job of yours",
        user=user,
        node="nowhere",
        rule="test",
        reason="this is only a test of reclaim notice test",
        deadline=now + config.idle.grace,
        idle=config.idle.window,
    )


def _outcome(delivery: Delivery) -> str:
    return "delivered" if delivery.ok else delivery.error


def _shape(delivery: Delivery) -> dict[str, object]:
    return {
        "channel": str(delivery.channel),
        "to": delivery.to,
        "ok": delivery.ok,
        "error": delivery.error,
        "at": delivery.at,
    }
