"""`Notices`: the ways to people, side by side."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence

from slurm_reclaim.adapters.notify import hook, mail, texts, webhook
from slurm_reclaim.adapters.notify.texts import Text
from slurm_reclaim.config.schema import Config
from slurm_reclaim.model.notice import Channel, Delivery, Notice

log = logging.getLogger(__name__)

Way = Callable[[Config, Notice, Text], Awaitable[list[Delivery]]]

WAYS: dict[Channel, Way] = {
    Channel.MAIL: mail.send,
    Channel.WEBHOOK: webhook.send,
    Channel.HOOK: hook.send,
}
# Each channel keeps its time by itself; this is for what it did not think of.
SPARE = 5.0  # seconds
# Thousands of sessions may become idle in the same minute. A mail server refuses many connections
# of one host, and each hook is a process.
AT_ONCE = 16  # notices


class Notices:
    """Fulfils ports.Notifier. `config` gives the one in force."""

    def __init__(self, config: Callable[[], Config]) -> None:
        self._config = config
        self._said: set[str] = set()
        self._room = asyncio.Semaphore(AT_ONCE)

    async def deliver(self, notice: Notice, only: Collection[str] = ()) -> Sequence[Delivery]:
        async with self._room:
            return await self._deliver(notice, only)

    async def _deliver(self, notice: Notice, only: Collection[str]) -> Sequence[Delivery]:
        config = self._config()
        text = self._filled(config, notice)
        wanted = set(config.notice.channels).intersection(only or config.notice.channels)
        chosen = [channel for channel in WAYS if channel.value in wanted]
        tries = (self._try(channel, config, notice, text) for channel in chosen)
        found = [each for some in await asyncio.gather(*tries) for each in some]
        for each in found:
            log.log(
                logging.INFO if each.ok else logging.WARNING,
                "notice %s %s job=%s by %s to %s: %s",
                notice.id, notice.kind.value, notice.job or "-", each.channel, each.to or "-",
                each.error or "delivered",
            )  # fmt: skip
        return found

    def text(self, notice: Notice) -> str:
        return texts.for_terminal(self._filled(self._config(), notice))

    def _filled(self, config: Config, notice: Notice) -> Text:
        text, problem = texts.read(config.notice.texts, notice.kind)
        if problem and problem not in self._said:
            self._said.add(problem)
            log.warning("%s", problem)
        return texts.fill(text, notice, time.time())

    async def _try(
        self, channel: Channel, config: Config, notice: Notice, text: Text
    ) -> list[Delivery]:
        try:
            limit = config.notice.timeout + SPARE
            return await asyncio.wait_for(WAYS[channel](config, notice, text), limit)
        except asyncio.TimeoutError:
            error = f"no end within {config.notice.timeout:g} s"
        except Exception as problem:
            log.exception("notice %s by %s", notice.id, channel)
            error = f"internal error: {problem}"
        return [Delivery(channel, False, error=error, at=time.time())]
