# SPDX-License-Identifier: Apache-2.0
"""What was measured, as the table of docs/gpu.md."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass, field

GB = 1e9


@dataclass
class Row:
    """Seconds, 0 for what was not done. `note`: what is not a number."""

    what: str
    bytes: int
    lock: float = 0.0
    checkpoint: float = 0.0
    dump: float = 0.0
    image_restore: float = 0.0
    restore: float = 0.0
    unlock: float = 0.0
    note: str = "every byte as before"

    def cells(self) -> list[str]:
        return [
            self.what,
            f"{self.bytes / (1 << 30):.2f}",
            _seconds(self.lock),
            _rate(self.checkpoint, self.bytes),
            _rate(self.dump, self.bytes),
            _rate(self.image_restore, self.bytes),
            _rate(self.restore, self.bytes),
            _seconds(self.unlock),
            self.note,
        ]


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}" if seconds else "-"


def _rate(seconds: float, size: int) -> str:
    return f"{seconds:.2f} ({size / seconds / GB:.1f})" if seconds else "-"


@dataclass
class Table:
    card: str = ""
    driver: str = ""
    way: str = ""
    criu: str = ""
    plain: dict[str, float] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    def markdown(self) -> str:
        header = (
            "held", "GiB", "lock s", "checkpoint s (GB/s)", "CRIU dump s (GB/s)",
            "CRIU restore s (GB/s)", "restore s (GB/s)", "unlock s", "then",
        )  # fmt: skip
        plain = ", ".join(f"{name} {rate:.1f}" for name, rate in sorted(self.plain.items()))
        lines = [
            f"{time.strftime('%Y-%m-%d')}, {self.card}, driver {self.driver}, by {self.way}, "
            f"CRIU {self.criu or 'not used'}, Linux {platform.release()}, {os.cpu_count()} cores.",
            f"Plain copies on the same machine, GB/s: {plain or 'not measured'}.",
            "",
            f"| {' | '.join(header)} |",
            "|" + "---|" * len(header),
            *(f"| {' | '.join(row.cells())} |" for row in self.rows),
        ]
        return "\n".join(lines)
