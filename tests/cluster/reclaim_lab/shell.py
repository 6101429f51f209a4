"""Running other programs, and telling the person what is going on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence

from reclaim_lab.errors import LabError


def say(text: str) -> None:
    """Progress goes to stderr: stdout belongs to what was asked for."""
    sys.stderr.write(f"lab: {text}\n")  # one write: layers are built at the same time
    sys.stderr.flush()


def run(
    argv: Sequence[str],
    *,
    doing: str,
    text_in: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> str:
    """Run to the end, give back stdout; a failure becomes a sentence with the last lines said."""
    try:
        done = subprocess.run(
            argv,
            input=text_in,
            stdin=subprocess.DEVNULL if text_in is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            env=env,
            timeout=timeout,
        )
    except FileNotFoundError as error:
        raise LabError(f"{doing}: {argv[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{doing}: {argv[0]} did not finish in {timeout:g} s") from error
    if done.returncode != 0:
        raise LabError(f"{doing}: {argv[0]} exited {done.returncode}: {tail(done.stderr)}")
    return done.stdout


def tail(text: str, lines: int = 6) -> str:
    """The last lines of a program's output, on one line."""
    kept = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return " | ".join(kept[-lines:]) or "(it said nothing)"
