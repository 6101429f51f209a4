"""Objects at a remote place, through fsspec: s3:// with s3fs, gs:// with gcsfs.

Every question is bounded in time, every transfer is retried a few times and compared: what was
sent counts only when the server has shown that it holds these bytes, whatever it answered before.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from slurm_reclaim.adapters.store import fragments
from slurm_reclaim.adapters.store.answers import Held, held, no_bucket, said
from slurm_reclaim.adapters.store.checksums import PART, Local
from slurm_reclaim.adapters.store.schemes import open_scheme
from slurm_reclaim.errors import IntegrityError, StoreUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

# One question, asked at every job start: the plugin waits for three seconds in all.
LOOK = 1.5
# One request of many; a transfer has as many as it needs within its own time.
_REQUEST = 60.0
_ATTEMPTS = 5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.3, 10.0
# After a question that nobody answered, the next within this time are not asked.
_QUIET = 5.0
_AT_ONCE = 2
_DETAILS = {"detail": True, "withdirs": False}
_CLOCK = ".clock-"
_KEYS = "see the keys in store.remote_options and what the bucket's policy allows"
_SKEWED = ("requesttimetooskewed", "too large", "skewed", "reasonable timeframe")


class Denied(StoreUnavailable):
    """The remote place answered, and said no: trying again changes nothing."""


class Bucket:
    """Keys are below `url`. Raises StoreUnavailable, where the answer was no its child Denied."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self.url = url.rstrip("/")
        self._scheme, _, self._root = self.url.partition("://")
        self._options = options
        self._fs: Any = None
        self._quiet_until = 0.0
        self._silence = ""

    def connect(self) -> None:
        """Load the library; no word goes out yet."""
        if self._fs is None:
            self._fs = open_scheme(self.url, self._options)

    # -- questions ----------------------------------------------------------------------------

    def exists(self, key: str, patience: float = LOOK) -> bool:
        return self.look(key, patience) is not None

    def look(self, key: str, patience: float = LOOK) -> Held | None:
        """None where the server says that there is no such object."""
        try:
            info = self._ask(f"look at {key}", patience, "info", self._path(key))
        except FileNotFoundError:
            return None
        return None if info.get("type") == "directory" else held(info)

    def list(self, prefix: str, patience: float = LOOK) -> dict[str, Held]:
        """Every object whose key begins with `prefix`, which may end within a name."""
        at, begin = self._folder(prefix)
        try:
            found = self._ask(f"list {prefix}", patience, "find", at, prefix=begin, **_DETAILS)
        except FileNotFoundError:
            return {}
        return self._keys(found, prefix)

    def look_through(self, prefix: str, deadline: float) -> dict[str, Held]:
        """The same where nobody's job waits for it: tried again, and all of it or an error."""
        at, begin = self._folder(prefix)

        def once() -> dict[str, Held]:
            found = self._call("find", at, prefix=begin, timeout=_left(deadline), **_DETAILS)
            return self._keys(found, prefix)

        try:
            return self._again(f"list {prefix}", once, deadline)
        except FileNotFoundError:
            return {}

    def folders(self, deadline: float) -> tuple[str, ...]:
        """Names at the top that have something below them."""

        def once() -> tuple[str, ...]:
            found = self._call("ls", self._root, detail=True, timeout=_left(deadline))
            folders = (info["name"] for info in found if info.get("type") == "directory")
            return tuple(sorted(name.rstrip("/").rpartition("/")[2] for name in folders))

        try:
            return self._again("list what is there", once, deadline)
        except FileNotFoundError:
            return ()

    def _folder(self, prefix: str) -> tuple[str, str]:
        folder, _, begin = prefix.rpartition("/")
        return self._path(folder), begin

    def _keys(self, found: dict[str, Any], prefix: str) -> dict[str, Held]:
        cut = len(self._root) + 1
        return {
            path[cut:]: held(info)
            for path, info in found.items()
            if path[cut:].startswith(prefix) and info.get("type") != "directory"
        }

    def read(self, key: str, patience: float = LOOK) -> bytes:
        """A small object. FileNotFoundError where there is none."""
        return bytes(self._ask(f"read {key}", patience, "cat_file", self._path(key)))

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}".rstrip("/")

    def _ask(self, what: str, patience: float, method: str, *args: Any, **more: Any) -> Any:
        """One question, without a second try: those who ask are waited for."""
        if time.monotonic() < self._quiet_until:
            raise StoreUnavailable(self._silence)
        try:
            answer = self._call(method, *args, timeout=patience, **more)
        except FileNotFoundError as error:
            self._quiet_until = 0.0
            if no_bucket(error):
                raise self._failure(what, error) from error
            raise
        except Exception as error:
            failure = self._failure(what, error)
            if not isinstance(failure, Denied):
                self._silence = failure.message
                self._quiet_until = time.monotonic() + _QUIET
            raise failure from error
        self._quiet_until = 0.0
        return answer

    def _call(self, method: str, *args: Any, timeout: float, **more: Any) -> Any:
        self.connect()
        return getattr(self._fs, method)(*args, timeout=timeout, **more)

    def _failure(self, what: str, error: BaseException) -> StoreUnavailable:
        """The sentence for people: what they have to look at."""
        words = said(error)
        low = words.lower()
        if no_bucket(error):
            return Denied(f"{self.url}: there is no such bucket", hint="is store.remote right?")
        if any(word in low for word in _SKEWED) and "time" in low:
            return Denied(
                f"{self.url}: the clocks differ too much ({words})",
                hint="set the node's clock; chrony or ntpd should run",
            )
        if isinstance(error, PermissionError):
            return Denied(f"{self.url}: refused (403) to {what}: {words}", hint=_KEYS)
        if getattr(error, "code", 0) == 401:
            # Not for good: of Google's, a token that ended just now is one, too.
            return StoreUnavailable(f"{self.url}: refused (401) to {what}: {words}", hint=_KEYS)
        if isinstance(error, (TimeoutError, asyncio.TimeoutError, _timeout())):
            return StoreUnavailable(f"{self.url} did not answer in time ({what})")
        return StoreUnavailable(f"{self.url}: could not {what}: {words}")

    # -- transfers ----------------------------------------------------------------------------

    def put(self, key: str, path: Path, deadline: float) -> None:
        """Send a file and see that the server holds it. `deadline`: of time.monotonic. Raises
        OSError where `path` can't be read."""
        local = Local(path)

        def once() -> None:
            if self._holds(key, local, deadline):
                return
            more = {"max_concurrency": _AT_ONCE} if self._scheme == "s3" else {}
            try:
                self._call(
                    "put_file", str(path), self._path(key), chunksize=local.part,
                    timeout=_left(deadline), **more,
                )  # fmt: skip
            except Exception as error:
                # The answer may be lost and the object there.
                if isinstance(error, PermissionError) or not self._holds(key, local, deadline):
                    raise
                log.info("%s: %s arrived, though: %s", self.url, key, said(error))
                return
            if not self._holds(key, local, deadline):
                raise OSError(f"what it holds of {key} is not what was sent")

        self._again(f"store {key}", once, deadline)

    def _holds(self, key: str, local: Local, deadline: float) -> bool:
        """By a checksum of the server's, where it names one that we know; else by reading."""
        try:
            there = self._info(key, deadline)
        except FileNotFoundError as error:
            if no_bucket(error):
                raise
            return False
        if there.size != local.size:
            return False
        same = there.checksum == local.checksum(there.checksum)
        return same or self._same(key, local, deadline)

    def _same(self, key: str, local: Local, deadline: float) -> bool:
        """Read it back. Some servers' checksums say nothing (encryption with keys of theirs)."""
        with local.path.open("rb") as file:
            for at in range(0, local.size, PART):
                end = min(at + PART, local.size)
                there = self._call(
                    "cat_file", self._path(key), start=at, end=end,
                    timeout=min(_REQUEST, _left(deadline)),
                )  # fmt: skip
                if there != file.read(end - at):
                    return False
        return True

    def get(self, key: str, path: Path, size: int, deadline: float) -> None:
        """Fetch an object of `size` bytes into a new file, durable. IntegrityError where there is
        none. Whether it is the right one is for the caller to say."""

        def once() -> None:
            with path.open("wb") as file:
                os.fchmod(file.fileno(), 0o600)
                for at in range(0, size, PART):
                    end = min(at + PART, size)
                    piece = self._call(
                        "cat_file", self._path(key), start=at, end=end,
                        timeout=min(_REQUEST, _left(deadline)),
                    )  # fmt: skip
                    if len(piece) != end - at:
                        raise OSError(f"{key} ends early")
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())

        try:
            self._again(f"fetch {key}", once, deadline)
        except FileNotFoundError:
            raise IntegrityError(f"{self.url}/{key} is missing") from None

    def take(self, key: str, size: int, deadline: float) -> bytes:
        """A small object of `size` bytes, tried again. FileNotFoundError where there is none."""

        def once() -> bytes:
            timeout = min(_REQUEST, _left(deadline))
            data = bytes(self._call("cat_file", self._path(key), timeout=timeout))
            if len(data) != size:
                raise OSError(f"{key} has {len(data)} bytes instead of {size}")
            return data

        return self._again(f"read {key}", once, deadline)

    def write(self, key: str, data: bytes, deadline: float) -> None:
        """A small object, as far as the server's answer can be believed."""

        def once() -> None:
            timeout = min(_REQUEST, _left(deadline))
            self._call("pipe_file", self._path(key), data, timeout=timeout)

        self._again(f"write {key}", once, deadline)

    def now(self, deadline: float) -> float:
        """Unix seconds by the server's clock, which dates what it holds; ours where it does not
        say."""
        key = f"{_CLOCK}{os.uname().nodename}-{secrets.token_hex(4)}"
        self.write(key, b"", deadline)
        try:
            there = self._again(f"look at {key}", lambda: self._info(key, deadline), deadline)
        except FileNotFoundError:
            raise StoreUnavailable(f"{self.url} does not show what it took ({key})") from None
        self.remove(key, deadline)
        return there.at or time.time()

    def there(self, key: str, deadline: float) -> bool:
        """As `exists`, tried again."""
        try:
            self._again(f"look at {key}", lambda: self._info(key, deadline), deadline)
        except FileNotFoundError:
            return False
        return True

    def _info(self, key: str, deadline: float) -> Held:
        timeout = min(_REQUEST, _left(deadline))
        return held(self._call("info", self._path(key), timeout=timeout))

    def remove(self, key: str, deadline: float) -> None:
        """Also where there is none."""

        def once() -> None:
            try:
                self._call("rm_file", self._path(key), timeout=min(_REQUEST, _left(deadline)))
            except FileNotFoundError as error:
                if no_bucket(error):
                    raise

        self._again(f"remove {key}", once, deadline)

    def drop_fragments(self, prefix: str, deadline: float) -> int:
        """End what broken uploads left below `prefix`, where nobody sends now; their number."""
        if self._scheme != "s3":
            return 0

        def call(*args: Any, **more: Any) -> Any:
            return self._call(*args, timeout=min(_REQUEST, _left(deadline)), **more)

        return fragments.drop(call, self._root, prefix)

    def _again(self, what: str, once: Callable[[], T], deadline: float) -> T:
        """A few times, each a while later, but not after the deadline."""
        for attempt in range(_ATTEMPTS):
            try:
                return once()
            except FileNotFoundError as error:
                if not no_bucket(error):
                    raise
                raise self._failure(what, error) from error
            except StoreUnavailable:
                raise
            except Exception as error:
                failure = self._failure(what, error)
                pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**attempt) * random.uniform(0.5, 1)
                last = attempt == _ATTEMPTS - 1 or time.monotonic() + pause >= deadline
                if isinstance(failure, Denied) or last:
                    raise failure from error
                log.info("%s; again in %.1f s", failure.message, pause)
                time.sleep(pause)
        raise AssertionError("unreachable")


def _left(deadline: float) -> float:
    """Seconds; TimeoutError where there are none."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time allowed is over")
    return left


def _timeout() -> type[BaseException]:
    from fsspec.exceptions import FSTimeoutError

    return FSTimeoutError  # type: ignore[no-any-return]
