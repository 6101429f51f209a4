"""Times and sizes as words in reasons: for log, CLI and notices alike."""

from __future__ import annotations

import time


def span(seconds: float) -> str:
    """The two largest units: 5400 is "1h30m", 3 is "3s"."""
    left = max(0, round(seconds))
    minutes, left = divmod(left, 60)
    if not minutes:
        return f"{left}s"
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{minutes}m{left}s" if left else f"{minutes}m"
    days, hours = divmod(hours, 24)
    if not days:
        return f"{hours}h{minutes}m" if minutes else f"{hours}h"
    return f"{days}d{hours}h" if hours else f"{days}d"


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
