"""`reclaim key`: the keys of the checkpoint store, on this host."""

from __future__ import annotations

import os
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurm_reclaim.cli.app import App, json_option, pass_app
from slurm_reclaim.config.units import parse_duration
from slurm_reclaim.errors import NotPermitted, OperationFailed

if TYPE_CHECKING:
    from slurm_reclaim.adapters.store.keys import KeyFile


@click.group("key")
def command() -> None:
    """Make and list keys that seal checkpoints (root only).

    They are those of this host (docs/storage.md).
    """


@command.command("new")
@click.option(
    "--after",
    metavar="DURATION",
    default="24h",
    show_default=True,
    help="It seals from then on, if it is not the first; until then copy the file to every node.",
)
@json_option
@pass_app
def new(app: App, after: str) -> None:
    """Make a key; the others stay and open what they have sealed.

    Nothing goes over the network: copy the file to every compute node, root's and 0600, before the
    key seals. A node without it can't restore what it has sealed.
    """
    file = _file(app)
    try:
        delay = parse_duration(after)
    except ValueError as error:
        raise click.UsageError(f"--after: {error}") from None
    try:
        made = file.add(delay)
    except OSError as error:
        raise OperationFailed(f"{file.path} can't be written: {error.strerror}") from None
    if app.output.json:
        app.output.value({"file": str(file.path), "key": made.id, "since": made.since})
        return
    app.output.text(f"key {made.id} in {file.path}, seals from {_time(made.since)} on")
    app.output.say("copy this file to every compute node now (root:root, 0600), and keep a backup")


@command.command("list")
@json_option
@pass_app
def list_(app: App) -> None:
    """The keys' ids, when each begins to seal, and which one seals now. Never a key itself."""
    file = _file(app)
    keys, first = file.keys(), file.sealing().id
    if app.output.json:
        found = [{"key": k.id, "since": k.since, "seals": k.id == first} for k in keys]
        app.output.value({"file": str(file.path), "keys": found})
        return
    now = time.time()
    rows = []
    for key in keys:
        role = "later" if key.since > now else "opens"
        rows.append((key.id, _time(key.since), "seals" if key.id == first else role))
    app.output.table(("KEY", "SINCE", "DOES"), rows, empty="")


def _file(app: App) -> KeyFile:
    from slurm_reclaim.adapters.store.keys import KeyFile

    if os.geteuid() != 0:
        raise NotPermitted("only root may see or make keys of the store")
    return KeyFile(Path(app.config().store.keys))


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
