"""The secrets of the remote place: a file that only root can read."""

from __future__ import annotations

import json
import os
import stat
from typing import Any

_MOST_OPTIONS = 64 << 10


def read_options(path: str, uid: int = 0) -> dict[str, Any]:
    """The options for fsspec from a JSON file that only root can read; none without a file. Raises
    ValueError with what is wrong."""
    if not path:
        return {}
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error.strerror}") from None
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        mode = stat.S_IMODE(status.st_mode)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} is no regular file")
        if status.st_uid != uid or mode & 0o177:
            raise ValueError(
                f"{path} is {mode:04o} and belongs to uid {status.st_uid}; "
                f"it must be root's with mode 0600"
            )
        text = file.read(_MOST_OPTIONS + 1)
    try:
        options = json.loads(text) if len(text) <= _MOST_OPTIONS else None
    except ValueError:
        options = None  # the message would show a part of it
    if not isinstance(options, dict):
        raise ValueError(f"{path} holds no JSON object of at most {_MOST_OPTIONS >> 10} KiB")
    return options
