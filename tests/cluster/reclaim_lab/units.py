"""The project's systemd units, obeyed without systemd: the same command line, account,
directories and readiness message.

Of the sandbox settings only those are applied that change what the program itself may do in
ways it has to cope with (NoNewPrivileges, capabilities, UMask).
"""

from __future__ import annotations

import re
import shlex
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

from reclaim_lab.errors import LabError

_DIRECTORIES = {
    "RuntimeDirectory": ("/run", "RUNTIME_DIRECTORY"),
    "StateDirectory": ("/var/lib", "STATE_DIRECTORY"),
    "CacheDirectory": ("/var/cache", "CACHE_DIRECTORY"),
    "LogsDirectory": ("/var/log", "LOGS_DIRECTORY"),
}


@dataclass
class Unit:
    name: str
    settings: dict[str, list[str]] = field(default_factory=dict)

    def last(self, key: str, default: str = "") -> str:
        return self.settings.get(key, [default])[-1]

    @property
    def user(self) -> str:
        return self.last("User", "root")

    @property
    def notifies(self) -> bool:
        return self.last("Type") in ("notify", "notify-reload")

    @property
    def start_timeout(self) -> float:
        match = re.fullmatch(r"(\d+)(s|sec|min|m)?", self.last("TimeoutStartSec", "60s"))
        if not match:
            return 60.0
        return float(match[1]) * (60 if (match[2] or "s").startswith("m") else 1)

    def environment(self) -> dict[str, str]:
        env: dict[str, str] = {}
        for line in self.settings.get("Environment", []):
            for name, equals, value in (word.partition("=") for word in shlex.split(line)):
                if equals:
                    env[name] = value
        for key, (base, variable) in _DIRECTORIES.items():
            names = " ".join(self.settings.get(key, [])).split()
            if names:
                env[variable] = ":".join(f"{base}/{name}" for name in names)
        return env

    def commands(self, key: str) -> list[tuple[bool, list[str]]]:
        """Command lines of ExecStart or ExecStartPre, and whether a failure may be ignored."""
        found = []
        for line in self.settings.get(key, []):
            match = re.match(r"[-@:+!|]*", line)
            prefix = match[0] if match else ""
            words = shlex.split(line[len(prefix) :])
            if any(re.search(r"(?<!\$)\$|%(?!%)", word) for word in words):
                raise LabError(f"{self.name}: {key} uses $ or %, which the lab does not expand")
            found.append(("-" in prefix, [w.replace("$$", "$").replace("%%", "%") for w in words]))
        return found

    def directories(self) -> str:
        """Shell lines that make the unit's directories as systemd would."""
        group = self.last("Group", "")
        owner = f"{self.user}:{group}" if group else f"{self.user}:"
        lines = []
        for key, (base, _) in _DIRECTORIES.items():
            mode = self.last(f"{key}Mode", "0755")
            for name in " ".join(self.settings.get(key, [])).split():
                path = shlex.quote(f"{base}/{name}")
                lines.append(f"mkdir -p {path}; chown {owner} {path}; chmod {mode} {path}")
        return "\n".join(lines)

    def privileges(self) -> list[str]:
        """Options for setpriv(1)."""
        options = []
        if self.last("NoNewPrivileges") in ("yes", "true", "1"):
            options.append("--no-new-privs")
        if "CapabilityBoundingSet" in self.settings and not self.last("CapabilityBoundingSet"):
            options += ["--bounding-set", "-all"]
        ambient = self.last("AmbientCapabilities").split()
        if ambient:
            wanted = ",".join("+" + name.lower().removeprefix("cap_") for name in ambient)
            options += ["--inh-caps", wanted, "--ambient-caps", wanted]
        return options


def parse(name: str, text: str) -> Unit:
    unit = Unit(name)
    section = ""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        if line.startswith("["):
            section = line
        elif section == "[Service]" and "=" in line:
            key, value = (part.strip() for part in line.split("=", 1))
            if value:
                unit.settings.setdefault(key, []).append(value)
            else:
                unit.settings[key] = []  # an empty value clears the list, as in systemd
    for key in ("CapabilityBoundingSet", "AmbientCapabilities"):
        if unit.settings.get(key) == []:
            unit.settings[key] = [""]
    return unit


class ReadySocket:
    """The socket of NOTIFY_SOCKET, made on the node by a path this machine can reach.

    A pathname socket is found by its inode: it works across network namespaces.
    """

    def __init__(self, place: Path) -> None:
        place.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(place))
        place.chmod(0o666)  # any account a unit names may write to it

    def wait(self, deadline: float) -> str | None:
        """'ready', or None when nothing decisive came in a short while."""
        self._socket.settimeout(max(0.01, min(0.2, deadline - time.monotonic())))
        try:
            said = self._socket.recv(8192).decode(errors="replace")
        except TimeoutError:
            return None
        return "ready" if "READY=1" in said.splitlines() else None

    def close(self) -> None:
        self._socket.close()
