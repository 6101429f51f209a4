"""What every command shares: the configuration, the way to reclaimd, and where to write."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

from slurm_reclaim.cli.output import Output
from slurm_reclaim.config.load import load
from slurm_reclaim.config.schema import Config
from slurm_reclaim.errors import AuthUnavailable, ControllerUnavailable

if TYPE_CHECKING:
    from slurm_reclaim.adapters.transport.client import ControllerClient
    from slurm_reclaim.adapters.transport.credential import Codec

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


def munge() -> Codec:
    # Imported late, as everything that talks to the network: `reclaim --help` stays quick.
    from slurm_reclaim.adapters.transport.munge import Munge

    return Munge()


@dataclass
class App:
    """`codec` makes the way to munged; tests put a stand-in there."""

    config_path: str | None = None
    output: Output = field(default_factory=Output)
    codec: Callable[[], Codec] = munge

    def config(self) -> Config:
        return load(self.config_path)

    def ask(self, talk: Callable[[ControllerClient], Awaitable[T]]) -> T:
        """Run one conversation with reclaimd."""
        from slurm_reclaim.adapters.transport.client import ControllerClient

        config = self.config()

        async def conversation() -> T:
            async with ControllerClient(config, self.codec()) as controller:
                return await talk(controller)

        return asyncio.run(conversation())


async def patiently(
    ask: Callable[[], Awaitable[T]], patience: float, pause: Callable[[], Awaitable[None]]
) -> T:
    """Ask again while reclaimd does not answer, at most for `patience` seconds: it may be
    restarting, and what was asked for goes on meanwhile."""
    deadline = asyncio.get_running_loop().time() + patience
    while True:
        try:
            return await ask()
        except (ControllerUnavailable, AuthUnavailable):
            if asyncio.get_running_loop().time() >= deadline:
                raise
            await pause()


pass_app = click.make_pass_decorator(App, ensure=True)


def json_option(command: Command) -> Command:
    """Add --json, which switches the output before the command runs."""

    def switch(context: click.Context, _: click.Parameter, value: bool) -> None:
        context.ensure_object(App).output.json = value

    return click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=switch,
        help="Write JSON for programs (docs/commands.md).",
    )(command)


def debugging() -> bool:
    return bool(os.environ.get("RECLAIM_DEBUG"))
