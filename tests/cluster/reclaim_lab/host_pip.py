"""The machine's pip settings and certificates, made to hold inside a root being built.

A setting that names a file or directory of this machine is kept by showing that path inside
the root, read-only; one whose path does not exist here is dropped, since pip would stop on it.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PASSED = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")
_PATHS = (
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
)
_PATH_SETTINGS = {"cert", "client-cert", "constraint", "requirement", "build-constraint"}
_PATH_OR_URL_SETTINGS = {"find-links", "extra-index-url", "index-url"}
# Where the host's pip puts things, and what only makes sense for the host's own interpreter.
_HOST_ONLY = {
    "target",
    "prefix",
    "root",
    "user",
    "python",
    "cache-dir",
    "require-virtualenv",
    "break-system-packages",
    "no-index",
    "log",
    "report",
}


@dataclass(frozen=True)
class PipSettings:
    env: dict[str, str]
    shown: list[str]
    """Paths of this machine that must be seen, read-only, at the same place in the root."""


def _config_files() -> Iterable[Path]:
    home = Path(os.environ.get("HOME", "/root"))
    config_home = Path(os.environ.get("XDG_CONFIG_HOME", home / ".config"))
    for base in reversed(os.environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")):
        yield Path(base) / "pip/pip.conf"
    yield Path("/etc/pip.conf")
    yield home / ".pip/pip.conf"
    yield config_home / "pip/pip.conf"
    if os.environ.get("PIP_CONFIG_FILE"):
        yield Path(os.environ["PIP_CONFIG_FILE"])


def _configured() -> dict[str, str]:
    """What pip would use for an install, files first and the environment over them."""
    settings: dict[str, str] = {}
    for path in _config_files():
        parser = configparser.RawConfigParser()
        try:
            parser.read(path)
        except (OSError, configparser.Error):
            continue  # pip itself will have told the person about a broken file
        for section in ("global", "install"):
            if parser.has_section(section):
                settings.update(parser.items(section))
    for key, value in os.environ.items():
        if key.startswith("PIP_") and key != "PIP_CONFIG_FILE":
            settings[key[4:].lower().replace("_", "-")] = value
    return settings


def _local_path(value: str) -> str | None:
    """The path a value points to on this machine; None for a remote address."""
    if value.startswith("file://"):
        return value[len("file://") :]
    return None if "://" in value else value


def _worth_passing(name: str, value: str, shown: list[str]) -> bool:
    if name not in _PATH_SETTINGS | _PATH_OR_URL_SETTINGS:
        return True
    path = _local_path(value)
    if path is None:
        return True
    if not path.startswith("/") or not os.path.exists(path):
        return False
    # An index on disk may link to files beside it ("../../files/x.whl"): show its parent as well.
    above = os.path.dirname(os.path.normpath(path))
    shown.append(above if name.endswith("index-url") and above.count("/") > 1 else path)
    return True


def pip_settings() -> PipSettings:
    env: dict[str, str] = {}
    shown: list[str] = []
    for name, value in _configured().items():
        if name in _HOST_ONLY:
            continue
        words = value.split() if name in _PATH_SETTINGS | _PATH_OR_URL_SETTINGS else [value]
        kept = [word for word in words if _worth_passing(name, word, shown)]
        if kept:
            env["PIP_" + name.upper().replace("-", "_")] = " ".join(kept)
    for key in _PATHS:
        path = os.environ.get(key, "")
        if path and os.path.exists(path):
            env[key] = path
            shown.append(path)
    for key in _PASSED:
        for spelled in (key, key.upper()):
            if os.environ.get(spelled):
                env[spelled] = os.environ[spelled]
    return PipSettings(env=env, shown=_outermost(shown))


def _outermost(paths: Iterable[str]) -> list[str]:
    kept: list[str] = []
    for path in sorted({os.path.normpath(path) for path in paths}):
        if not any(path == other or path.startswith(other + "/") for other in kept):
            kept.append(path)
    return kept
