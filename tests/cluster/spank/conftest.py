# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import Lab
from tests.cluster.spank.bench import FAKE, FRESH, LOG, NODE, Bench


@pytest.fixture(scope="module")
def node(lab: Lab) -> Iterator[Lab]:
    """A node with the fake agent's program instead of the real agent."""
    lab.exec(
        NODE,
        "sh",
        "-c",
        f"cat > {FAKE}",
        stdin=Path(__file__).parents[1].joinpath("fake_agent.py").read_text(),
    )
    lab.stop_daemon(NODE, "reclaim-agent")
    yield lab
    lab.start_daemon(NODE, "reclaim-agent")


@pytest.fixture
def bench(node: Lab) -> Iterator[Bench]:
    bench = Bench(node)
    bench.root(f"rm -rf {LOG} /run/slurm-reclaim/missed/*")
    bench.stop_agent()
    bench.start_agent(*FRESH)
    yield bench
    # What ignores SIGTERM would otherwise be waited for until KillWait has passed.
    for job in bench.jobs:
        node.exec("ctl", "scancel", "-s", "KILL", str(job), check=False)
        node.exec("ctl", "scancel", str(job), check=False)
    for job in bench.jobs:
        node.wait(f"job {job} leaves", lambda job=job: not bench.squeue(job), 60)
    bench.stop_agent()
