"""`reclaim checkpoints`: what is stored, what becomes of it, and what may be done with it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import click

from slurm_reclaim.cli import phrases, shape
from slurm_reclaim.cli.app import App, json_option, pass_app, patiently
from slurm_reclaim.errors import IntegrityError, NotPermitted, OperationFailed
from slurm_reclaim.model.catalogue import (
    Errand,
    Listed,
    Listing,
    Pin,
    Shown,
    parse_checkpoint_ref,
)
from slurm_reclaim.model.ids import parse_session_id
from slurm_reclaim.model.session import Session

_HEADER = ("CHECKPOINT", "USER", "STATE", "CREATED", "SIZE", "ALONE", "PINNED", "EXPIRES", "KEPT")
_WAIT = 20  # seconds that one question for an errand is held open
_PATIENCE = 60.0  # seconds for which a reclaimd that does not answer is asked again


def _parse(context: click.Context, parameter: click.Parameter, value: str) -> str:
    parse_checkpoint_ref(value)
    return value.strip()


_checkpoint = click.argument("checkpoint", metavar="CHECKPOINT", callback=_parse)


@click.group("checkpoints")
def command() -> None:
    """What is stored of sessions, and what becomes of it.

    CHECKPOINT is a job id (the newest checkpoint of the newest session of that job), `123/2` (that
    of restart count 2), or a session in full as shown by `list`, with or without `/2`.
    """


@command.command("list")
@json_option
@pass_app
def show_all(app: App) -> None:
    """List your checkpoints; operators and root see everybody's."""
    listing = app.ask(lambda c: c.get("/v1/checkpoints", Listing, timeout=300))
    if app.output.json:
        app.output.value(
            {
                "at": listing.at,
                "node": listing.node,
                "total": listing.total,
                "orphans": listing.orphans,
                "checkpoints": [shape.checkpoint(each) for each in listing.checkpoints],
            }
        )
        return
    app.output.table(_HEADER, [_row(each) for each in listing.checkpoints], empty="no checkpoints")
    if listing.total:
        orphans = f", {phrases.size(listing.orphans)} of unknown sessions" * bool(listing.orphans)
        app.output.say(f"{phrases.size(listing.total)} in the store{orphans}")


def _row(each: Listed) -> tuple[str, ...]:
    return (
        f"{each.session}/{each.restarts}",
        each.user or str(each.uid),
        each.state,
        phrases.moment(each.created) or "-",
        phrases.size(each.bytes),
        phrases.size(each.alone),
        ",".join(pin.by for pin in each.pins) or "-",
        phrases.moment(each.expires) or "-",
        each.problem or each.keeps,
    )


@command.command("show")
@_checkpoint
@json_option
@pass_app
def show(app: App, checkpoint: str) -> None:
    """Show one checkpoint: its files, sizes, and what it shares."""
    shown = _ask(app, "show", checkpoint, Shown)
    if app.output.json:
        app.output.value(shape.checkpoint(shown.checkpoint, shown.parts))
        return
    each = shown.checkpoint
    app.output.record(
        [
            ("checkpoint", f"{each.session}/{each.restarts}"),
            ("job", each.job),
            ("user", each.user or str(each.uid)),
            ("session", each.state),
            ("created", f"{phrases.moment(each.created)} on {each.node}" if each.created else ""),
            ("reason", each.reason),
            ("size", f"{phrases.size(each.bytes)}, {phrases.size(each.alone)} would go with it"),
            ("pinned", "\n".join(_pin(pin) for pin in each.pins)),
            ("kept", each.keeps),
            ("expires", phrases.moment(each.expires)),
            ("problem", each.problem),
        ]
    )
    rows = [
        (part.path, str(part.size), ", ".join(map(str, part.also)) or "-") for part in shown.parts
    ]
    app.output.table(("FILE", "BYTES", "ALSO NEEDED BY"), rows, empty="its files are not known")


def _pin(pin: Pin) -> str:
    who = f"{pin.by} (operator)" if pin.admin else pin.by
    return f"by {who} {phrases.moment(pin.at)}" + (f": {pin.reason}" if pin.reason else "")


@command.command("pin")
@_checkpoint
@click.option("--reason", default="", help="Shown to whoever looks at it.")
@json_option
@pass_app
def pin(app: App, checkpoint: str, reason: str) -> None:
    """Pin a checkpoint: nothing deletes it.

    Its session does not end by age either.
    """
    made = _ask(app, "pin", checkpoint, Pin, reason=reason)
    if app.output.json:
        app.output.value(shape.pin(made))
        return
    app.output.text(f"{made.session}/{made.restarts} is pinned")


@command.command("unpin")
@_checkpoint
@json_option
@pass_app
def unpin(app: App, checkpoint: str) -> None:
    """Take the pin away. An operator's pin is taken away by operators only."""
    gone = _ask(app, "unpin", checkpoint, tuple[Pin, ...])
    if app.output.json:
        app.output.value({"unpinned": [shape.pin(each) for each in gone]})
        return
    app.output.text(f"{gone[0].session}/{gone[0].restarts} is no longer pinned by {gone[0].by}")


@command.command("verify")
@_checkpoint
@json_option
@pass_app
def verify(app: App, checkpoint: str) -> None:
    """Read every byte of a checkpoint again (operators only).

    Exit code 50 if anything differs.
    """
    errand = _errand(app, "verify", checkpoint)
    if app.output.json:
        app.output.value({"checkpoint": checkpoint, "differs": list(errand.answer.differs)})
    if errand.answer.differs:
        raise IntegrityError("\n".join(errand.answer.differs))
    if not app.output.json:
        app.output.text(f"{checkpoint}: every byte is as it was written")


@command.command("expire")
@_checkpoint
@json_option
@pass_app
def expire(app: App, checkpoint: str) -> None:
    """Delete a checkpoint before its time.

    Never a pinned one, and never the newest of a session that has not ended.
    """
    errand = _errand(app, "expire", checkpoint)
    if app.output.json:
        deleted = list(errand.answer.deleted)
        app.output.value({"deleted": deleted, "bytes": errand.answer.freed})
        return
    app.output.text(f"{checkpoint}: deleted, {phrases.size(errand.answer.freed)} freed")


@command.command("abandon")
@_checkpoint
@click.option("--start-over", is_flag=True, help="Even if nothing is left of the session's work.")
@json_option
@pass_app
def abandon(app: App, checkpoint: str, start_over: bool) -> None:
    """Give up JOB/N, whose only copy is on a lost node (operators).

    For store.upload = "after". The session goes back to the newest checkpoint that the store has.
    Should the node come back, its copy is uploaded; until the session is restored, it counts.
    """
    body = {"checkpoint": checkpoint, "start_over": start_over}
    after = app.ask(lambda c: c.post("/v1/checkpoints/abandon", body, Session, timeout=300))
    if app.output.json:
        app.output.value({"job": after.job, "checkpoint": after.checkpoint})
    elif after.checkpoint >= 0:
        app.output.text(f"job {after.job} will be restored from checkpoint {after.checkpoint}")
    else:
        app.output.text(f"job {after.job} has no checkpoint: scontrol release starts it over")


@command.command("export")
@_checkpoint
@click.argument("file", type=click.Path(path_type=Path))
@json_option
@pass_app
def export(app: App, checkpoint: str, file: Path) -> None:
    """Write a checkpoint to FILE, an archive that needs nothing else.

    Runs as root on a host that has the store. Every byte is compared on its way. Unpacked below
    <store>/<cluster> it is a checkpoint again.
    """
    from slurm_reclaim.adapters.store import export as archive
    from slurm_reclaim.adapters.store.places import stocks_of

    if os.geteuid() != 0:
        raise NotPermitted("only root may export checkpoints: they hold the memory of a user")
    config = app.config()
    ref = parse_checkpoint_ref(checkpoint)
    cluster = parse_session_id(ref.session).cluster if ref.session else config.slurm.cluster
    work = Path(config.agent.state) / "work"
    stock, id, restarts = archive.find(stocks_of(config.store, cluster, work), ref)
    size = archive.export(stock, id, restarts, file)
    if app.output.json:
        app.output.value({"checkpoint": f"{id}/{restarts}", "file": str(file), "bytes": size})
        return
    app.output.text(f"{id}/{restarts} written to {file}, {phrases.size(size)}")


def _ask(app: App, verb: str, checkpoint: str, kind: Any, **more: str) -> Any:
    body = {"checkpoint": checkpoint, **more}
    return app.ask(lambda c: c.post(f"/v1/checkpoints/{verb}", body, kind, timeout=300))


def _errand(app: App, verb: str, checkpoint: str) -> Errand:
    """Ask for it and wait, however long it takes. Raises OperationFailed with what went wrong."""

    async def follow(controller: Any) -> Errand:
        body = {"checkpoint": checkpoint}
        errand: Errand = await controller.post(f"/v1/checkpoints/{verb}", body, Errand, timeout=300)
        path = f"/v1/checkpoints/errands/{errand.number}?wait={_WAIT}"
        while not errand.done:
            errand = await patiently(
                lambda: controller.get(path, Errand, timeout=_WAIT + 20),
                _PATIENCE,
                lambda: asyncio.sleep(1),
            )
        return errand

    errand = app.ask(follow)
    if errand.error:
        raise OperationFailed(errand.error)
    return errand
