"""The `reclaim` command: sub-commands, and the one place where errors become exit codes."""

from __future__ import annotations

import difflib
import os
import sys
from importlib import import_module
from typing import Any

import click

from slurm_reclaim import __version__
from slurm_reclaim.cli.app import App, debugging
from slurm_reclaim.errors import ProgrammingError, ReclaimError

# Command -> module below slurm_reclaim.cli, imported when it is called.
_COMMANDS = {
    "list": "list",
    "show": "show",
    "hibernate": "hibernate",
    "restore": "restore",
    "keep": "keep",
    "explain": "explain",
    "events": "events",
    "environment": "environment",
    "brake": "brake",
    "checkpoints": "checkpoints",
    "notice": "notice",
    "record": "record",
    "replay": "replay",
    "score": "score",
    "check": "check",
    "config": "config",
    "key": "key",
}
_ALIASES = {"pause": "hibernate", "resume": "restore"}

INTERRUPTED = 130
_JSON = "slurm_reclaim.json"


class Commands(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        module = _COMMANDS.get(_ALIASES.get(name, name))
        if module is None:
            return None
        command = import_module(f"slurm_reclaim.cli.{module}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            _, command, rest = super().resolve_command(context, args)
        except click.UsageError as error:
            # click looks among the commands that were added to the group: none are, they are lazy.
            near = difflib.get_close_matches(args[0], [*_COMMANDS, *_ALIASES], n=1)
            if not near:
                raise
            meant = f"{error.message} Did you mean {near[0]!r}?"
            raise click.UsageError(meant, ctx=error.ctx) from None
        return command.name if command else None, command, rest

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        context.meta[_JSON] = "--json" in args
        return super().parse_args(context, args)

    def invoke(self, context: click.Context) -> Any:
        app = context.ensure_object(App)
        try:
            outcome = super().invoke(context)
            app.output.flush()
            return outcome
        except click.UsageError as error:
            if context.meta[_JSON]:
                app.output.usage_error(error.format_message(), error.exit_code)
            raise
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            # `reclaim list | head`: not an error. (click itself would make one of it.)
            raise click.exceptions.Exit(0) from None
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None
        except Exception as error:
            if debugging():
                raise
            known = error if isinstance(error, ReclaimError) else _unexpected(error)
            app.output.error(known)
            raise click.exceptions.Exit(known.exit_code) from None


def _unexpected(error: Exception) -> ProgrammingError:
    return ProgrammingError(
        f"unexpected {type(error).__name__}: {error}",
        hint="please report it with the traceback that RECLAIM_DEBUG=1 shows",
    )


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 ok, 2 usage, 20-29 refused, 30-39 no answer, 40-49 failed "
    "(docs/errors.md).",
)
@click.option(
    "--config",
    "path",
    metavar="FILE",
    envvar="RECLAIM_CONFIG",
    help="Read FILE instead of /etc/slurm-reclaim/slurm-reclaim.toml.",
)
@click.version_option(__version__, prog_name="reclaim")
@click.pass_context
def reclaim(context: click.Context, path: str | None) -> None:
    """Interactive Slurm sessions that can be put to disk and brought back as they were."""
    context.ensure_object(App).config_path = path


def main() -> None:
    _open_what_is_closed()
    try:
        reclaim(prog_name="reclaim")
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            # Told already. Python would complain of what is left in its buffer.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _open_what_is_closed() -> None:
    """A caller may have closed one of the three (`>&-`)."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


if __name__ == "__main__":
    main()
