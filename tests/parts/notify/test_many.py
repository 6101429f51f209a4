"""Thousands of sessions may become idle in the same minute."""

from __future__ import annotations

import asyncio
from pathlib import Path

from slurm_reclaim.adapters.notify.notices import AT_ONCE, Notices

from .conftest import Make, notice


async def test_as_many_hooks_run_as_a_host_can_bear(make: Make, tmp_path: Path) -> None:
    hooks, running = tmp_path / "hooks", tmp_path / "running"
    hooks.mkdir()
    running.mkdir()
    hook = hooks / "slow"
    hook.write_text(
        f"#!/bin/sh\ntouch {running}/$$; ls {running} | wc -l >> {tmp_path}/seen\n"
        f"sleep 0.2; rm {running}/$$\n"
    )
    hook.chmod(0o755)
    many = 3 * AT_ONCE
    notices = Notices(lambda: make(channels=["hook"], timeout=20.0))
    found = await asyncio.gather(*(notices.deliver(notice()) for _ in range(many)))
    assert [d.ok for some in found for d in some] == [True] * many
    seen = [int(line) for line in (tmp_path / "seen").read_text().split()]
    assert len(seen) == many
    assert max(seen) <= AT_ONCE
