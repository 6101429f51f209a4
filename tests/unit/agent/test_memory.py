"""What the agent needed for a while is the kernel's again."""

from __future__ import annotations

import subprocess
import sys
import weakref

import pytest

from slurm_reclaim.daemon.aside import in_thread

# What lies between things that stay: the C library keeps it.
SCATTERED = """
import os
from slurm_reclaim.adapters import memory
from slurm_reclaim.adapters.proc import tree
held = [bytes(2000) for _ in range(20_000)]
kept = held[::500]
del held
before = tree.resident(os.getpid())
memory.give_back()
print(before - tree.resident(os.getpid()))
"""


def test_memory_that_was_freed_between_other_things_goes_back() -> None:
    done = subprocess.run([sys.executable, "-c", SCATTERED], capture_output=True, check=True)
    assert int(done.stdout) > 20 << 20


class Ring:
    def __init__(self) -> None:
        self.itself = self


@pytest.mark.parametrize("fails", [False, True])
async def test_work_aside_leaves_nothing_that_refers_to_itself(fails: bool) -> None:
    made: list[weakref.ref[Ring]] = []

    def work() -> None:
        made.append(weakref.ref(Ring()))
        if fails:
            raise ValueError

    try:
        await in_thread(work)
    except ValueError:
        assert fails
    for _ in range(100):
        if made[0]() is None:
            break
        await in_thread(lambda: None)
    assert made[0]() is None
