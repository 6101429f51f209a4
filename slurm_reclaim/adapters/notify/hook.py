"""Programs of the site that get every notice: JSON on standard input, nothing as an argument."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slurm_reclaim.adapters.in_memory import file_of
from slurm_reclaim.adapters.notify import trust
from slurm_reclaim.adapters.notify.payload import payload
from slurm_reclaim.adapters.notify.texts import Text
from slurm_reclaim.config.schema import Config
from slurm_reclaim.model.notice import Channel, Delivery, Notice
from slurm_reclaim.model.printable import line

# Those that run-parts(8) takes: no .dpkg-old, no editor's backup, no .sh either.
NAME = re.compile(r"[A-Za-z0-9_-]+")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MOST_OUTPUT = 4096  # bytes of the last output that are kept
DYING = 2.0  # seconds for a killed hook to be gone


@dataclass(frozen=True, slots=True)
class Hook:
    """`path` has no links in it. `problem`: why it is not run; `ignored`: it is none."""

    name: str
    path: str
    problem: str = ""
    ignored: str = ""


def find(folder: str, user: str) -> list[Hook]:
    """What lies in the directory, by name. Raises OSError where it can't be read."""
    owners = trust.owners(user)
    return [_look(folder, name, user, owners) for name in sorted(os.listdir(folder))]


def _look(folder: str, name: str, user: str, owners: set[int]) -> Hook:
    place = Path(folder, name)
    if NAME.fullmatch(name) is None:
        return Hook(name, str(place), ignored="a hook's name has letters, digits, _ and - only")
    try:
        path = place.resolve(strict=True)
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            return Hook(name, str(path), ignored="it is no file")
        if not mode & 0o111:
            return Hook(name, str(path), ignored="it is not executable")
        culprit = trust.culprit(path, owners)
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return Hook(name, str(place), problem=f"not run: {why}")
    if culprit:
        who = "root" if user == "root" else f"root and {user}"
        return Hook(name, str(path), problem=f"not run: others than {who} can change {culprit}")
    return Hook(name, str(path))


async def send(config: Config, notice: Notice, text: Text) -> list[Delivery]:
    """Every hook at once, each in its time."""
    settings = config.notice
    try:
        hooks = await asyncio.to_thread(find, settings.hooks, config.controller.user)
    except OSError as error:
        return [_delivery(line(settings.hooks), f"{settings.hooks}: {error.strerror}")]
    hooks = [hook for hook in hooks if not hook.ignored]
    if not hooks:
        return [_delivery(line(settings.hooks), f"{settings.hooks} has no hook in it")]
    body = payload(notice, text, time.time())
    tries = (_run(hook, notice.kind.value, body, settings.timeout) for hook in hooks)
    return list(await asyncio.gather(*tries))


def _delivery(name: str, error: str) -> Delivery:
    return Delivery(Channel.HOOK, not error, line(name, 80), line(error, 300), time.time())


async def _run(hook: Hook, kind: str, body: bytes, timeout: float) -> Delivery:
    if hook.problem:
        return _delivery(hook.name, hook.problem)
    output, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    tail = _Tail(output)
    try:
        os.set_blocking(writing, True)
        # A file, not a pipe: a hook that does not read keeps nobody waiting.
        with file_of(body, "notice") as stdin:
            process = await asyncio.create_subprocess_exec(
                hook.path, stdin=stdin, stdout=writing, stderr=writing, cwd="/",
                env={"PATH": PATH, "LC_ALL": "C.UTF-8", "RECLAIM_NOTICE": kind},
                start_new_session=True,
            )  # fmt: skip
        tail.follow()
        status = await _end(process, timeout)
    except OSError as error:
        return _delivery(hook.name, f"can't be run: {error.strerror}")
    finally:
        tail.stop()
        for handle in (output, writing):
            os.close(handle)
    if status is None:
        return _delivery(hook.name, f"killed after {timeout:g} s: {tail.last()}".rstrip(": "))
    if status:
        what = f"exit status {status}" if status > 0 else f"killed by signal {-status}"
        return _delivery(hook.name, f"{what}: {tail.last()}".rstrip(": "))
    return _delivery(hook.name, "")


async def _end(process: asyncio.subprocess.Process, timeout: float) -> int | None:
    """Its exit status, negative for a signal; None where it was killed for taking too long, and
    with it all that it started. What a hook that ended leaves running is left alone."""
    try:
        return await asyncio.wait_for(process.wait(), timeout)
    except asyncio.TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), DYING)


class _Tail:
    """Reads a pipe as it fills and keeps the end. A writer that goes on after the hook ended is
    not waited for."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._kept = b""

    def follow(self) -> None:
        asyncio.get_running_loop().add_reader(self._handle, self._read)

    def stop(self) -> None:
        """Also takes what was written since the loop looked last."""
        asyncio.get_running_loop().remove_reader(self._handle)
        self._read()

    def _read(self) -> None:
        with suppress(BlockingIOError):
            chunk = os.read(self._handle, 1 << 16)
            self._kept = (self._kept + chunk)[-MOST_OUTPUT:]
            if not chunk:
                asyncio.get_running_loop().remove_reader(self._handle)

    def last(self) -> str:
        """The last line that says something."""
        said = self._kept.decode("utf-8", "replace").strip()
        return line(said.split("\n")[-1], 200)
