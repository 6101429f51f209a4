"""Times and sizes as words in reasons: for log, CLI and notices alike."""

from __future__ import annotations

import time


def span(seconds: float) -> str:
    """The two largest units: 5400 is "1h30m", 3 is "3s"."""
    left = max(0, round(seconds))
    parts: list[str] = []
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return "".join(parts[:2]) or "0s"


def clock(at: float) -> str:
    """Local date and minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def amount(size: float) -> str:
    """1288490188 is "1.2 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
