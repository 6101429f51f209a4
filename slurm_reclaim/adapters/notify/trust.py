"""What reclaimd runs and what it signs with must not be in the hands of others."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from slurm_reclaim.errors import NotPermitted, OperationFailed

MOST_SECRET = 4096  # bytes


def owners(user: str) -> set[int]:
    """Root, and the account reclaimd runs as where there is one."""
    return {0, _uid(user)} - {-1}


def _uid(user: str) -> int:
    """-1: there is no such account."""
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return -1


def culprit(path: Path, owners: set[int]) -> str:
    """The first part of `path`, from the file up, that somebody else can change ("": none). A
    directory like /tmp, in which only the owner of a file may rename it, is good enough. Raises
    OSError. `path` is resolved: no links in it."""
    for part in (path, *path.parents):
        status = os.lstat(part)
        sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if status.st_uid not in owners or (status.st_mode & 0o022 and not sticky):
            return str(part)
    return ""


def secret(path: str, user: str) -> bytes:
    """The content of a file that only `user` may read, without the line end. Raises ValueError
    with what is wrong."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error.strerror}") from None
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} is no regular file")
        if status.st_uid != _uid(user):
            raise ValueError(f"{path} belongs to uid {status.st_uid}; chown it to {user}")
        if status.st_mode & 0o077:
            mode = stat.S_IMODE(status.st_mode)
            raise ValueError(f"{path} is {mode:04o}; nobody but its owner may read it (chmod 0600)")
        content = file.read(MOST_SECRET + 1).strip()
    if not content or len(content) > MOST_SECRET:
        raise ValueError(f"{path} is {'longer than 4 KiB' if content else 'empty'}")
    return content


def become(user: str) -> None:
    """Go on as `user`, for good, where we are root. Raises NotPermitted where we are neither root
    nor `user`, OperationFailed where there is no such account."""
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise OperationFailed(
            f"there is no account {user} here", hint="run it on the controller's host"
        ) from None
    if os.geteuid() == account.pw_uid:
        return
    if os.geteuid() != 0:
        raise NotPermitted(f"only root and {user} may do this")
    os.initgroups(user, account.pw_gid)
    os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
    os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
