"""How a Jupyter server wants to be asked: its token, its path, whether by TLS.

All of this is what its owner can write, so it only chooses among sockets that are proven to be the
server's (listeners.py), and it is only ever sent there.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from slurm_reclaim.adapters.proc.owner import open_within, read_bounded

MOST_ENVIRONMENT = 1 << 20  # bytes
MOST_INFO = 64 << 10  # bytes
MOST_TEXT = 1024  # characters of a token or a path

_PLAIN = re.compile(r"^[\x21-\x7e]+$")
_WANTED = (
    "HOME", "XDG_DATA_HOME", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_TOKEN",
    "JUPYTERHUB_API_TOKEN", "JUPYTERHUB_SERVICE_PREFIX",
)  # fmt: skip


class _Info(msgspec.Struct):
    """jpserver-PID.json as jupyter_server writes it, nbserver-PID.json of the classic notebook."""

    pid: int
    port: int = 0
    base_url: str = "/"
    token: str = ""
    sock: str = ""
    secure: bool = False


@dataclass(frozen=True, slots=True)
class Access:
    """`tokens` to try in this order, "" asks without one; `port` 0: unknown; `secure` None:
    unknown; `sock`: path of a Unix socket; `listed`: as the server's info file says."""

    tokens: tuple[str, ...]
    base_url: str
    port: int
    secure: bool | None
    sock: str
    listed: bool


def environment(path: str) -> dict[str, str]:
    """What matters here of the environment a process was started with. Empty where it is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        raw = read_bounded(fd, MOST_ENVIRONMENT)
    except OSError:
        return {}
    finally:
        os.close(fd)
    pairs = (line.partition(b"=") for line in raw.split(b"\0"))
    found = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
    return {name: found[name] for name in _WANTED if name in found}


def find(root: int, pid: int, words: Sequence[str], env: Mapping[str, str]) -> list[Access]:
    """By the info file, where there is one, and by command line and environment: the file may be
    another server's, as sessions of one owner have the same PIDs. To be called with the owner's
    rights. `root`: the server's root directory; `pid`: its own."""
    hub = env.get("JUPYTERHUB_API_TOKEN", "") if "JUPYTERHUB_SERVICE_PREFIX" in env else ""
    port = option(words, "port")
    told = Access(
        tokens=_usable(hub, env.get("JUPYTER_TOKEN", ""), option(words, "token")),
        base_url=_path(env.get("JUPYTERHUB_SERVICE_PREFIX") or option(words, "base_url")),
        port=int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 0,
        secure=True if option(words, "certfile") else None,
        sock=option(words, "sock"),
        listed=False,
    )
    info = _info(root, pid, env)
    if info is None:
        return [told]
    tokens = _usable(hub, info.token)
    base_url = _path(info.base_url)
    return [Access(tokens, base_url, info.port, info.secure, info.sock, listed=True), told]


def option(words: Sequence[str], name: str) -> str:
    """The value of a command-line option, `--name=value` or `--name value`, whatever class it is
    given for (`--ServerApp.name=value`). Empty where there is none."""
    for number, word in enumerate(words):
        head, equals, value = word.partition("=")
        if head.startswith("--") and head[2:].rpartition(".")[2] == name:
            return value if equals else "".join(words[number + 1 : number + 2])
    return ""


def _usable(*tokens: str) -> tuple[str, ...]:
    fit = (t for t in tokens if len(t) <= MOST_TEXT and _PLAIN.match(t))
    return tuple(dict.fromkeys(fit)) or ("",)


def _path(text: str) -> str:
    if not text or len(text) > MOST_TEXT or not _PLAIN.match(text):
        return "/"
    return f"/{text.strip('/')}/" if text.strip("/") else "/"


def _info(root: int, pid: int, env: Mapping[str, str]) -> _Info | None:
    for folder in _folders(env):
        for kind in ("jpserver", "nbserver"):
            raw = _regular(root, f"{folder}/{kind}-{pid}.json")
            if raw is None:
                continue
            try:
                info = msgspec.json.decode(raw, type=_Info)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                continue
            if info.pid == pid:
                return info
    return None


def _folders(env: Mapping[str, str]) -> list[str]:
    """Jupyter's runtime directory, as jupyter_core.paths finds it."""
    if chosen := env.get("JUPYTER_RUNTIME_DIR"):
        return [chosen]
    if chosen := env.get("JUPYTER_DATA_DIR"):
        return [f"{chosen}/runtime"]
    home = env.get("HOME", "")
    data = env.get("XDG_DATA_HOME") or (f"{home}/.local/share" if home else "")
    return [f"{data}/jupyter/runtime"] if data else []


def _regular(root: int, path: str) -> bytes | None:
    try:
        fd = open_within(root, path, os.O_RDONLY)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        raw = read_bounded(fd, MOST_INFO + 1)
    except OSError:
        return None
    finally:
        os.close(fd)
    return raw if len(raw) <= MOST_INFO else None
