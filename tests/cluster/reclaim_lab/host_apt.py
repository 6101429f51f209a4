"""Which Debian mirror this machine uses, and the apt settings needed to reach it.

Nothing about mirrors is written in this project: a machine behind a mirror of its own, a proxy
or a private certificate authority builds the image through the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reclaim_lab.errors import LabError
from reclaim_lab.shell import run

ARCHIVE_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

_SETTINGS_PASSED = re.compile(
    r"Acquire::(https?(::|\s)|ForceIPv|Retries|Check-Valid-Until|Check-Date|AllowInsecure)",
)


@dataclass(frozen=True)
class Source:
    uri: str
    suite: str
    signed_by: str


def _one_line_sources(text: str) -> Iterator[Source]:
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+\S+", line)
        if match:
            options = dict(o.split("=", 1) for o in (match[1] or "").split() if "=" in o)
            yield Source(match[2], match[3], options.get("signed-by", ""))


def _deb822_sources(text: str) -> Iterator[Source]:
    for stanza in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        key = ""
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1].isspace():
                fields[key] = fields.get(key, "") + " " + line.strip()
            elif ":" in line:
                key, value = line.split(":", 1)
                key = key.lower()
                fields[key] = value.strip()
        if fields.get("enabled", "yes").lower() in ("no", "false", "0"):
            continue
        if "deb" not in fields.get("types", "").split():
            continue
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield Source(uri, suite, fields.get("signed-by", ""))


def host_sources(etc: Path = Path("/etc/apt")) -> list[Source]:
    found: list[Source] = []
    parts = etc / "sources.list.d"
    for path in [etc / "sources.list", *sorted(parts.glob("*.list"))]:
        if path.is_file():
            found += _one_line_sources(path.read_text(errors="replace"))
    for path in sorted(parts.glob("*.sources")):
        found += _deb822_sources(path.read_text(errors="replace"))
    return found


def debian_mirror(sources: list[Source]) -> Source:
    """The source that this machine's own release comes from, not its security updates."""
    release = Path("/etc/os-release").read_text()
    codename = re.search(r"^VERSION_CODENAME=\"?([a-z]+)", release, re.M)
    wanted = [codename[1]] if codename else []
    for suite in [*wanted, "stable", "testing", "sid", "unstable"]:
        for source in sources:
            if source.suite == suite and not source.uri.startswith(("file:", "cdrom:")):
                return source
    raise LabError("no Debian mirror in /etc/apt; the image is built from the machine's own mirror")


def source_line(mirror: Source, suite: str) -> str:
    keyring = mirror.signed_by if Path(mirror.signed_by).is_file() else ARCHIVE_KEYRING
    return f"deb [signed-by={keyring}] {mirror.uri} {suite} main"


def apt_settings() -> list[str]:
    """Lines for apt.conf that matter for reaching the mirror."""
    dump = run(["apt-config", "dump"], doing="reading apt's settings")
    kept = [line for line in dump.splitlines() if _SETTINGS_PASSED.match(line) and '""' not in line]
    for scheme in ("http", "https"):
        proxy = os.environ.get(f"{scheme}_proxy") or os.environ.get(f"{scheme.upper()}_PROXY")
        if proxy:
            kept.append(f'Acquire::{scheme}::Proxy "{proxy}";')
    return kept
