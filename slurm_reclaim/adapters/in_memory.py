"""Files that fill no disk, for programs that are given something to read."""

from __future__ import annotations

import fcntl
import os
from typing import BinaryIO

_UNCHANGED = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK


def file_of(data: bytes, name: str) -> BinaryIO:
    """To be read from its beginning. Whoever gets hold of it can't change it; `name` is for who
    looks into /proc. Raises OSError."""
    file = os.fdopen(os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "w+b")
    try:
        file.write(data)
        file.flush()
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _UNCHANGED)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file
