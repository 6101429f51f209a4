"""The agent's handles of its capture and serve programs: one dump on its way into the store, one
checkpoint on its way out."""

from __future__ import annotations

import os
import shutil
import site
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import slurm_reclaim
from slurm_reclaim.adapters.criu import stream as criu
from slurm_reclaim.adapters.store import talk
from slurm_reclaim.errors import IntegrityError, StoreUnavailable
from slurm_reclaim.model.checkpoint import Contents, Credentials, Manifest, Part

_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/nonexistent"}
# Buffers of a MiB are taken and given back all the time: not from and to the kernel each.
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": "67108864", "MALLOC_TRIM_THRESHOLD_": "268435456"}
# Seconds without a word from a program that has nothing to wait for but the end of a pipe: whoever
# wrote into it ran as the session's owner, who can hold it open for good.
PATIENCE = 120.0
# Seconds without a word from one that waits for the store: a session stays frozen, or an allocation
# without a session, for as long.
STORE_PATIENCE = 600.0
# -I: no directory and no variable of anybody's has a say in what is imported. -S: what lies in the
# site's directories is found there, but no .pth file in them is obeyed, which takes its time.
# What it passes by is for annotations that msgspec is not asked of here, and half of its import.
_START = (
    "import sys; sys.path += {places!r}; sys.modules['typing_extensions'] = None; "
    "from slurm_reclaim.adapters.store.{module} import main; main()"
)


def _silent() -> str:
    return f"the store has not answered for {STORE_PATIENCE:g} s"


class _Program:
    """One of our two programs, and the local directory it works in: `images` root's, `criu` with
    the socket and the log of CRIU, which runs as `owner`. Nobody else gets there by a path."""

    def __init__(
        self,
        module: str,
        listen: str,
        work: Path,
        owner: Credentials,
        note: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.work = work
        self.images, self.criu = work / "images", work / "criu"
        self._changed = threading.Condition()
        self._trouble: tuple[str, str] | None = None
        self._gone = False
        self._told: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}
        self._note = note
        shutil.rmtree(work, ignore_errors=True)
        try:
            self._start(module, listen, owner)
        except BaseException as error:
            shutil.rmtree(work, ignore_errors=True)
            if isinstance(error, OSError):
                why = f"the program at the store can't be started in {work}: {error.strerror}"
                raise StoreUnavailable(why) from error
            raise

    def _start(self, module: str, listen: str, owner: Credentials) -> None:
        self.work.mkdir(mode=0o700, parents=True)
        self.images.mkdir(mode=0o700)
        self.criu.mkdir(mode=0o700)
        fd = os.open(self.criu, os.O_RDONLY | os.O_DIRECTORY)
        try:
            listening = criu.listen(fd, listen, owner.uid)
        finally:
            os.close(fd)
        os.chown(self.criu, owner.uid, owner.gid)
        self._ours, theirs = talk.pair()
        places = [str(Path(slurm_reclaim.__file__).parent.parent), *site.getsitepackages()]
        with listening, theirs:
            # It ends when nobody has the other end any more.
            threading.Thread(target=self._listen, daemon=True).start()
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _START.format(places=places, module=module),
                 str(listening.fileno()), str(theirs.fileno())],
                pass_fds=(listening.fileno(), theirs.fileno()), start_new_session=True,
                stdin=subprocess.DEVNULL, cwd="/", env=_ENVIRONMENT | _MALLOC,
            )  # fmt: skip

    def _listen(self) -> None:
        while True:
            try:
                message, _ = talk.receive(self._ours)
            except (talk.Hangup, OSError):
                break
            with self._changed:
                self._take(message)
                self._changed.notify_all()
        with self._changed:
            self._gone = True
            self._changed.notify_all()

    def _take(self, message: dict[str, Any]) -> None:
        if "error" in message:
            self._trouble = self._trouble or (message["error"], message.get("kind", ""))
        self._told |= message
        if "stored" in message:
            self._sizes[message["stored"]] = message["bytes"]
        if "raw" in message:
            self._note(message["raw"])

    def order(self, orders: dict[str, Any]) -> None:
        """The first that it is told: what to do. It is ended where that can't be said."""
        try:
            self.say(orders, send=talk.send_large)
        except BaseException:
            self.close()
            raise

    def say(self, *what: Any, send: Callable[..., None] = talk.send) -> None:
        """A message, and a descriptor where one goes with it."""
        try:
            send(self._ours, *what)
        except (talk.Hangup, OSError) as error:
            self._raise()
            raise StoreUnavailable("the program at the store has ended") from error

    def wait(self, for_: Callable[[], bool], pipe: str = "") -> dict[str, Any]:
        """What it told, once `for_` holds. Raises what it complained of, and StoreUnavailable where
        it waits for the end of `pipe`, or else for the store, and that does not come."""
        with self._changed:
            while not for_():
                self._raise()
                if self._gone:
                    raise StoreUnavailable("the program at the store was killed")
                if self._changed.wait(PATIENCE if pipe else STORE_PATIENCE):
                    continue
                if pipe:
                    raise StoreUnavailable(f"{pipe} does not end: its pipe is held open, or stuck")
                raise StoreUnavailable(_silent())
            return dict(self._told)

    def _raise(self) -> None:
        if self._trouble is not None:
            said, kind = self._trouble
            raise IntegrityError(said) if kind != "OSError" else StoreUnavailable(said)

    def trouble(self) -> str:
        """What it complained of, or that it is gone; empty where all is well. It may know better
        than those whose pipe broke."""
        with self._changed:
            if self._child.poll() is not None:
                self._changed.wait_for(lambda: self._gone)
                return self._trouble[0] if self._trouble else "the program at the store was killed"
            return self._trouble[0] if self._trouble else ""

    def cut(self) -> None:
        """End it: whoever writes into its pipes learns that nobody reads them."""
        self._child.kill()

    def close(self) -> None:
        """End it and remove what it worked in. Never raises."""
        with suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)
        self._child.kill()
        self._child.wait()
        self._ours.close()
        shutil.rmtree(self.work, ignore_errors=True)


class Staging(_Program):
    """A dump on its way in. Fulfils ports.Staging."""

    def __init__(
        self,
        folder: Path,
        work: Path,
        owner: Credentials,
        orders: dict[str, Any],
        wrap: Callable[[str], str],
        note: Callable[[int], None],
    ) -> None:
        super().__init__("capture", criu.CAPTURE_SOCKET, work, owner, note)
        self.folder = folder
        self._orders = orders
        self._wrap = wrap
        self.order(orders | {"folder": str(folder), "images": str(self.images)})

    @contextmanager
    def receive(self, name: str) -> Iterator[BinaryIO]:
        """A pipe; what is written into it becomes the stream `name`, stored on return. Of what
        raises inside nothing is waited for."""
        reading, writing = os.pipe()
        with suppress(BrokenPipeError), os.fdopen(writing, "wb", buffering=0) as file:
            try:
                self.say({"do": "take", "name": name}, reading)
            finally:
                os.close(reading)
            yield file
        self.wait(lambda: name in self._sizes, name)

    def settle(self) -> None:
        """CRIU has ended: wait until its last image has been taken out of its pipe."""
        self.wait(lambda: "settled" in self._told, "CRIU's last image")

    def size(self, name: str) -> int:
        """Bytes of a stream that was received."""
        return self._sizes[name]

    def finish(self) -> Contents:
        """Everything is in: make it durable. What was is only told again."""
        with self._changed:
            finished = "finished" in self._told
        if not finished:
            self.say({"do": "finish"})
        told = self.wait(lambda: "finished" in self._told)
        new, index = Part(*told["pack"]), Part(*told["index"])
        old = {known["path"]: Part(**known) for known in self._orders["known"]}
        keys = tuple(map(self._wrap, told["packs"]))
        return Contents(
            parts=(index,),
            keys=keys if any(keys) else (),
            packs=tuple(new if n == new.path else old[n] for n in told["packs"]),
            seed=self._orders["seed"],
            raw=told["raw"],
            stored=new.size + index.size,
        )


class Opened(_Program):
    """A checkpoint on its way out; once it is `ready` its small images are in `images`. Fulfils
    ports.Opened."""

    def __init__(
        self, folder: Path, packs: Path, work: Path, manifest: Manifest, keys: dict[str, str]
    ) -> None:
        self._asked = 0
        super().__init__("serve", criu.SERVE_SOCKET, work, manifest.credentials)
        self.manifest = manifest
        self.order(
            {
                "folder": str(folder),
                "packs": str(packs),
                "images": str(self.images),
                "index": asdict(manifest.contents.parts[0]),
                "known": [asdict(pack) for pack in manifest.contents.packs],
                "keys": keys,
            }
        )

    def ready(self) -> None:
        """Wait until the program has started and seen that all it needs is there; nothing that can
        be done without it needs to. Raises IntegrityError, StoreUnavailable."""
        self.wait(lambda: "ready" in self._told)

    def give(self) -> None:
        """CRIU, which may have asked by now, is given from here on what it asks for."""
        self.say({"do": "give"})

    @contextmanager
    def send(self, name: str) -> Iterator[BinaryIO]:
        """The stream `name` to be read from front to back. Raises IntegrityError at the end, where
        what was read was not all."""
        self.ready()
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb", buffering=0) as file:
            try:
                self.say({"do": "send", "name": name}, writing)
            finally:
                os.close(writing)
            yield file
        if why := self.trouble():
            raise IntegrityError(why)

    def trouble(self) -> str:
        """A complaint is sent before the pipe ends that it is about: what is asked for now comes
        after it."""
        self._asked += 1
        with suppress(talk.Hangup, OSError):
            talk.send(self._ours, {"do": "tell", "number": self._asked})
            with self._changed:
                if not self._changed.wait_for(self._has_told, STORE_PATIENCE):
                    return _silent()
        return super().trouble()

    def _has_told(self) -> bool:
        return self._gone or self._told.get("told") == self._asked
