"""`reclaim config`: what is configured, from where, and what is wrong with it."""

from __future__ import annotations

import click

from slurm_reclaim.adapters.notify import texts
from slurm_reclaim.cli.app import App, json_option, pass_app
from slurm_reclaim.config import render
from slurm_reclaim.config.load import digest, load_with_origins


@click.group("config")
def command() -> None:
    """Look at the configuration."""


@command.command("check")
@json_option
@pass_app
def check(app: App) -> None:
    """Name every mistake; exit 11 if there is one.

    Mistakes in the texts of notices are named, too, but do no harm: the built-in text is used.
    """
    loaded = load_with_origins(app.config_path)
    warnings = texts.mistakes(loaded.config.notice.texts)
    if app.output.json:
        app.output.value(
            {
                "files": list(loaded.files),
                "digest": digest(loaded.config),
                "warnings": warnings,
            }
        )
        return
    for warning in warnings:
        app.output.say(f"warning: {warning}")
    app.output.text(f"ok: {', '.join(loaded.files)} ({digest(loaded.config)})")


@command.command("show")
@json_option
@pass_app
def show(app: App) -> None:
    """Every setting in force and where it comes from."""
    loaded = load_with_origins(app.config_path)
    shown = render.in_force(loaded)
    if app.output.json:
        app.output.value(
            {
                "files": list(loaded.files),
                "digest": digest(loaded.config),
                "settings": [
                    {"key": s.key, "value": s.plain, "text": s.value, "origin": s.origin}
                    for s in shown
                ],
            }
        )
        return
    app.output.table(
        ("SETTING", "VALUE", "FROM"), [(s.key, s.value, s.origin) for s in shown], empty=""
    )


@command.command("sample")
@pass_app
def sample(app: App) -> None:
    """Write a sample file: every setting, its default and meaning."""
    app.output.text(render.sample().rstrip("\n"))
