"""A folder that stands for a compute node, and what checks say of it."""

from __future__ import annotations

import os
from pathlib import Path

from slurm_reclaim.checks.host import Host
from slurm_reclaim.checks.result import Check, Verdict


class Node:
    """A folder that stands for a compute node; whoever runs the test is its root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.root.chmod(0o755)
        self.host = Host(str(root), root_uid=os.geteuid())

    def file(self, path: str, text: str = "", mode: int = 0o644) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        place.write_text(text)
        place.chmod(mode)


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def verdicts(checks: list[Check]) -> dict[str, Verdict]:
    return {check.name: check.verdict for check in checks}
