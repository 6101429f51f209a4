"""The simulated GPU libraries, compiled once in a run: the workers share them."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

SIMULATED = Path(__file__).parents[1] / "gpu"


def _made(factory: pytest.TempPathFactory, name: str, *goals: str) -> Path:
    place = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent  # this run's
    build = place / name
    with (place / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # for make finds done what another worker has done
        words = ["make", "-s", "-j2", "-C", str(SIMULATED), *goals]
        words += [f"BUILD={build}", f"SANITIZED={build}"]
        done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return build


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the libraries, as they are installed."""
    return _made(tmp_path_factory, "simulated")


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the address and undefined behaviour sanitizers."""
    return _made(tmp_path_factory, "sanitized", "sanitized")


@pytest.fixture(scope="session")
def sanitizer() -> dict[str, str]:
    """The environment of a program that loads them but was compiled without."""
    words = ["cc", "-print-file-name=libasan.so"]
    asan = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    return {"LD_PRELOAD": asan, "ASAN_OPTIONS": "detect_leaks=0"}
