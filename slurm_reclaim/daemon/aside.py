"""Work in a thread of its own. Those that asyncio keeps are few, and whatever hangs in one of them
(a user's file system whose server is gone) takes it away from all that is to come, the starts of
other jobs among it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

from slurm_reclaim.adapters import memory

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """What `work` returns or raises. A wait that is given up leaves the thread behind. Afterwards
    the process holds no more memory than it needs while it waits for the next."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def tell(set: Callable[[], None]) -> None:
        if not answer.done():
            set()

    def run() -> None:
        try:
            value = work(*args, **named)
        except BaseException as error:
            said = error
            _call(loop, lambda: tell(lambda: answer.set_exception(said)))
        else:
            _call(loop, lambda: tell(lambda: answer.set_result(value)))
        memory.give_back()

    threading.Thread(target=run, name=getattr(work, "__name__", "aside"), daemon=True).start()
    return await answer


def _call(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(what)
