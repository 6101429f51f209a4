"""The machine as checks see it: files, commands, the account. A test puts a folder in its place."""

from __future__ import annotations

import os
import platform
import socket
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NOT_FOUND = 127
TIMED_OUT = 124


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that has ended; `code` is NOT_FOUND or TIMED_OUT where it did not run or end."""

    code: int
    out: str
    err: str = ""

    @property
    def problem(self) -> str:
        """The last line it said, for messages."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return lines[-1].strip() if lines else f"exit status {self.code}"


class Host:
    """`root` is put before every path; `root_uid` is who counts as root there."""

    def __init__(self, root: str = "/", root_uid: int = 0) -> None:
        self._root = Path(root)
        self.root_uid = root_uid

    @property
    def uid(self) -> int:
        return os.geteuid()

    @property
    def name(self) -> str:
        return platform.node().partition(".")[0]

    @property
    def kernel(self) -> str:
        return platform.release()

    def place(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def read(self, path: str) -> str:
        """Raises OSError."""
        return self.place(path).read_text(errors="replace")

    def exists(self, path: str) -> bool:
        return self.place(path).exists()

    def glob(self, pattern: str) -> list[str]:
        """Absolute paths as the host has them, in name order."""
        found = self._root.glob(pattern.lstrip("/"))
        return sorted("/" + str(path.relative_to(self._root)) for path in found)

    def stat(self, path: str) -> os.stat_result | None:
        """None where there is nothing, or nothing we may see."""
        try:
            return self.place(path).stat()
        except OSError:
            return None

    def tampered(self, path: str) -> str:
        """The first part of the resolved path, from the file up, that others than root can change
        ("": none). The SPANK plugin asks the same of what it runs."""
        part = self.place(path).resolve()
        while True:
            status = part.stat()
            sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
            if status.st_uid != self.root_uid or (others_may(status, 2) and not sticky):
                return str(part)
            if part in (self._root.resolve(), part.parent):
                return ""
            part = part.parent

    def connects(self, path: str) -> bool:
        """Whether somebody listens on the Unix socket."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(3)
            try:
                connection.connect(str(self.place(path)))
            except OSError:
                return False
            return True

    def run(self, argv: Sequence[str], *, timeout: float = 30) -> Ran:
        """Never raises; English and without our own settings, so that it can be read."""
        env = {**os.environ, "LC_ALL": "C"}
        env.pop("SLURM_TIME_FORMAT", None)
        try:
            done = subprocess.run(
                # An account we step down to may not see the directory we were called in.
                argv, cwd="/", env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                errors="replace", timeout=timeout, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Ran(TIMED_OUT, "", f"no answer within {timeout:g} s")
        except OSError as error:
            return Ran(NOT_FOUND, "", f"{argv[0]}: {error.strerror}")
        return Ran(done.returncode, done.stdout, done.stderr)


def mode(status: os.stat_result) -> str:
    return f"{stat.S_IMODE(status.st_mode):04o}"


def others_may(status: os.stat_result, bits: int) -> bool:
    """Whether group or others have any of the permission `bits` (7: any at all)."""
    return bool(status.st_mode & (bits << 3 | bits))
