"""The files of this working tree that get installed, committed or not, without build products."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import tomllib
from reclaim_lab.errors import LabError
from reclaim_lab.places import CHECKOUT
from reclaim_lab.shell import run


def files(parts: Sequence[str]) -> list[str]:
    """Of these parts. Relative paths, sorted. A file deleted but not yet committed is left out."""
    listed = run(
        ["git", "-c", "safe.directory=*", "-C", str(CHECKOUT), "ls-files", "-coz",
         "--exclude-standard", "--", *parts],
        doing="listing the files of this checkout",
    )  # fmt: skip
    found = {name for name in listed.split("\0") if name and (CHECKOUT / name).is_file()}
    return sorted(found)


def content_digest(names: list[str]) -> str:
    total = hashlib.sha256()
    for name in names:
        path = CHECKOUT / name
        total.update(f"{name}\0{path.stat().st_mode & 0o111}\0".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:16]


def copy_to(place: Path, names: list[str]) -> None:
    for name in names:
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(CHECKOUT / name, target)
    if "pyproject.toml" in names and not (place / "README.md").exists():
        (place / "README.md").touch()  # named in pyproject.toml: without it no wheel is built


def project_table(*keys: str) -> list[str]:
    """A list from pyproject.toml."""
    path = CHECKOUT / "pyproject.toml"
    if not path.exists():
        return []
    try:
        value = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise LabError(f"pyproject.toml: {error}") from error
    for key in keys[:-1]:
        value = value.get(key, {})
    return [str(word) for word in value.get(keys[-1], [])]
