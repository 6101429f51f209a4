"""Single values as Slurm prints them (with SLURM_TIME_FORMAT=%s)."""

from __future__ import annotations

from slurm_reclaim.errors import SchedulerUnavailable

_UNSET = frozenset({"", "N/A", "None", "Unknown", "UNKNOWN", "NONE", "(null)", "NOT_SET"})
_NO_LIMIT = frozenset({"UNLIMITED", "INVALID", "Partition_Limit"})


def number(text: str) -> int:
    """0 where unset. Raises SchedulerUnavailable."""
    text = text.strip()
    if text in _UNSET:
        return 0
    try:
        return int(text)
    except ValueError:
        raise SchedulerUnavailable(f"Slurm said {text!r} where a number is expected") from None


def words(text: str) -> str:
    """ "" where unset."""
    text = text.strip()
    return "" if text in {"N/A", "(null)"} else text


def seconds(text: str) -> int:
    """`days-hours:minutes:seconds`, as seconds; 0 for no limit. Raises SchedulerUnavailable."""
    text = text.strip()
    if text in _UNSET or text in _NO_LIMIT:
        return 0
    days, _, rest = text.rpartition("-")
    total = 0
    try:
        for part in rest.split(":"):
            total = total * 60 + int(part)
        return int(days or 0) * 86400 + total
    except ValueError:
        raise SchedulerUnavailable(f"Slurm said {text!r} where a time is expected") from None
