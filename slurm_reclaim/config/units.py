"""Durations and sizes as people write them: always with a unit."""

from __future__ import annotations

import re
from fractions import Fraction

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_BYTES = {
    "B": 1,
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGTP", 1)},
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGTP", 1)},
}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[smhdw])")
_DURATION = re.compile(rf"(?:{_DURATION_PART.pattern}\s*)+")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]i?B|B)")


def parse_duration(text: str) -> float:
    """Seconds of "45m" or "1h30m". Raises ValueError with what is expected."""
    text = text.strip()
    if _DURATION.fullmatch(text) is None:
        raise ValueError('expected a duration with a unit, such as "30s", "45m" or "1h30m"')
    return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(text))


def parse_size(text: str) -> int:
    """Bytes of "64MiB" or "2 TB". Raises ValueError with what is expected."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError('expected a size with a unit, such as "64MiB" or "2TB"')
    return int(Fraction(match[1]) * _BYTES[match[2]])


def format_duration(seconds: float) -> str:
    """The shortest exact way to write it: 5400 is "1h30m", 0.5 is "500ms"."""
    left = round(seconds * 1000)
    parts: list[str] = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, left = divmod(left, round(_SECONDS[unit] * 1000))
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def format_size(size: int) -> str:
    """The largest binary unit that divides it: 1073741824 is "1GiB"."""
    for letter in "PTGMK":
        if size and size % _BYTES[f"{letter}iB"] == 0:
            return f"{size // _BYTES[f'{letter}iB']}{letter}iB"
    return f"{size}B"
